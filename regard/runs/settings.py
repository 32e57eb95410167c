"""The [train] section: how long, with what, and how often to validate and save."""

from dataclasses import dataclass

from regard.config import check_range, setting
from regard.errors import ConfigError


@dataclass(frozen=True)
class TrainConfig:
    """Settings of the training loop. A model's preset may change these defaults (its recipe)."""

    steps: int = setting(0, "number of updates; 0 = as many as `epochs` gives")
    epochs: int = setting(10, "passes over the corpus, if `steps` is 0")
    minutes: float = setting(
        0.0, "time limit in minutes, after which training ends and the model is saved; 0 = no limit"
    )
    batch_tokens: int = setting(4096, "maximum number of tokens on the longer side of a batch, padding included")
    accumulate: int = setting(1, "number of batches whose gradients are summed into one update")
    seed: int = setting(1, "seed for the initial weights, the order of batches and dropout")
    start_from: str = setting("", "run folder to start from: its weights, model and vocabulary are used")

    optimiser: str = setting("adam", "optimiser", ("adam", "adamw", "adadelta", "sgd", "rmsprop"))
    rate: float = setting(0.001, "peak learning rate (Noam: a factor on the paper's formula)")
    momentum: float = setting(0.0, "momentum of SGD and RMSProp")
    beta2: float = setting(0.999, "Adam's decay rate of squared gradients (0.98 for the Transformer)")
    weight_decay: float = setting(0.0, "weight decay of AdamW")
    schedule: str = setting(
        "constant",
        "learning-rate schedule",
        ("constant", "noam", "inverse-sqrt", "cosine", "halving", "decay", "plateau"),
    )
    warmup: int = setting(0, "number of updates over which the rate rises")
    halve_after: float = setting(5.0, "halving schedule: epochs before the first halving")
    halve_every: float = setting(1.0, "halving schedule: epochs between halvings")
    decay: float = setting(0.85, "decay schedule: factor applied to the rate after each epoch")
    decay_after: int = setting(0, "decay schedule: epochs that are not counted, with the first one at the full rate")
    clip: float = setting(1.0, "maximum norm of the gradient; larger gradients are scaled down; 0 = no clipping")
    normalise: str = setting(
        "tokens", "divide the loss by the number of tokens or of sentences", ("tokens", "sentences")
    )
    label_smoothing: float = setting(0.0, "probability mass spread over all words")
    consistency: float = setting(
        0.0, "R-Drop: weight of the divergence between two passes with different dropout (0 = off, 5 usual)"
    )
    guided: float = setting(0.0, "weight of the loss that pulls attention towards data.alignment (0 = off, 0.05 usual)")
    guided_layer: int = setting(-2, "attention layer to guide, from 0; -1 is the last, -2 the one before it")
    guided_head: int = setting(0, "head of that layer to guide, from 0; -1 = the mean of its heads")
    guided_shift: int = setting(
        0, "row to guide for each word: 0 = the one that writes it, 1 = the next one (a Transformer has read the word)"
    )
    coverage: float = setting(
        0.0, "weight of the coverage loss on the attention of guided_layer and guided_head (0 = off; See 2017: 1)"
    )
    precision: str = setting(
        "float32",
        "precision on a GPU: float32, float32 with TF32 products, or mixed with bfloat16",
        ("float32", "tf32", "bf16"),
    )
    device: str = setting("auto", "cpu, cuda, or auto (a GPU if there is one)")
    capture: bool = setting(True, "on a GPU, record updates as CUDA graphs and replay them; batches have few shapes")

    validate_every: int = setting(0, "number of updates between validations; 0 = once per epoch")
    validate_sentences: int = setting(500, "maximum number of held-out sentences to translate in a validation")
    validate_beam: int = setting(1, "beam width in validations; 1 = greedy, the fastest")
    save_every: int = setting(500, "number of updates between checkpoints")
    keep: int = setting(3, "number of latest checkpoints to keep, besides the best")
    average: int = setting(1, "number of latest checkpoints to average at the end; 1 = use the best one")
    best_by: str = setting(
        "bleu",
        "metric that selects the best checkpoint; ties are broken by the loss (a BLEU below 1 counts as 0)",
        ("bleu", "loss", "accuracy"),
    )
    patience: int = setting(0, "number of validations without improvement before training stops; 0 = never stop early")

    def __post_init__(self) -> None:
        counts = ("steps", "epochs", "warmup", "decay_after", "validate_every", "validate_sentences", "patience")
        weights = ("clip", "minutes", "weight_decay", "halve_after", "consistency", "guided", "coverage")
        check_range("train", self, "[0, inf)", *counts, *weights)
        check_range(
            "train", self, "[1, inf)", "batch_tokens", "accumulate", "save_every", "keep", "average", "validate_beam"
        )
        check_range("train", self, "(0, inf)", "rate", "halve_every")
        check_range("train", self, "[0, 1)", "momentum", "beta2", "label_smoothing")
        check_range("train", self, "(0, 1]", "decay")
        if self.guided_shift not in (0, 1):
            raise ConfigError(f"train.guided_shift must be 0 or 1; got {self.guided_shift}.")
        if self.guided_shift and not self.guided:
            raise ConfigError("train.guided_shift needs guided attention: set train.guided above 0, or leave it out.")
        if self.guided_head < -1:
            raise ConfigError(f"train.guided_head must be at least 0, or -1 for the mean; got {self.guided_head}.")
        if not (self.steps or self.epochs or self.minutes):
            raise ConfigError("Training needs an end: set train.steps, train.epochs or train.minutes above 0.")
        if self.average > self.keep:
            raise ConfigError(
                f"train.average ({self.average}) needs as many checkpoints; set train.keep to {self.average} or more."
            )
