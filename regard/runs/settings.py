"""The [train] section: how long, with what, and how often to validate and save."""

from dataclasses import dataclass

from regard.config import Settings, setting
from regard.errors import ConfigError


@dataclass(frozen=True)
class TrainConfig(Settings):
    """Settings of the training loop. A model's preset may change these defaults (its recipe)."""

    table = "train"

    steps: int = setting(0, "number of updates; 0 = as many as `epochs` gives", "[0, inf)")
    epochs: int = setting(10, "passes over the corpus, if `steps` is 0", "[0, inf)")
    minutes: float = setting(
        0.0, "time limit in minutes, after which training ends and the model is saved; 0 = no limit", "[0, inf)"
    )
    batch_tokens: int = setting(
        4096, "maximum number of tokens on the longer side of a batch, padding included", "[1, inf)"
    )
    accumulate: int = setting(1, "number of batches whose gradients are summed into one update", "[1, inf)")
    seed: int = setting(1, "seed for the initial weights, the order of batches and dropout")
    start_from: str = setting("", "run folder to start from: its weights, model and vocabulary are used")

    optimiser: str = setting("adam", "optimiser", ("adam", "adamw", "adadelta", "sgd", "rmsprop"))
    rate: float = setting(0.001, "peak learning rate (Noam: a factor on the paper's formula)", "(0, inf)")
    momentum: float = setting(0.0, "momentum of SGD and RMSProp", "[0, 1)")
    beta2: float = setting(0.999, "Adam's decay rate of squared gradients (0.98 for the Transformer)", "[0, 1)")
    weight_decay: float = setting(0.0, "weight decay of AdamW", "[0, inf)")
    schedule: str = setting(
        "constant",
        "learning-rate schedule",
        ("constant", "noam", "inverse-sqrt", "cosine", "halving", "decay", "plateau"),
    )
    warmup: int = setting(0, "number of updates over which the rate rises", "[0, inf)")
    halve_after: float = setting(5.0, "halving schedule: epochs before the first halving", "[0, inf)")
    halve_every: float = setting(1.0, "halving schedule: epochs between halvings", "(0, inf)")
    decay: float = setting(0.85, "decay schedule: factor applied to the rate after each epoch", "(0, 1]")
    decay_after: int = setting(
        0, "decay schedule: epochs that are not counted, with the first one at the full rate", "[0, inf)"
    )
    clip: float = setting(
        1.0, "maximum norm of the gradient; larger gradients are scaled down; 0 = no clipping", "[0, inf)"
    )
    normalise: str = setting(
        "tokens", "divide the loss by the number of tokens or of sentences", ("tokens", "sentences")
    )
    label_smoothing: float = setting(0.0, "probability mass spread over all words", "[0, 1)")
    consistency: float = setting(
        0.0, "R-Drop: weight of the divergence between two passes with different dropout (0 = off, 5 usual)", "[0, inf)"
    )
    guided: float = setting(
        0.0, "weight of the loss that pulls attention towards data.alignment (0 = off, 0.05 usual)", "[0, inf)"
    )
    guided_layer: int = setting(-2, "attention layer to guide, from 0; -1 is the last, -2 the one before it")
    guided_head: int = setting(0, "head of that layer to guide, from 0; -1 = the mean of its heads", "[-1, inf)")
    guided_shift: int = setting(
        0,
        "row to guide for each word: 0 = the one that writes it, 1 = the next one (a Transformer has read the word)",
        "[0, 1]",
    )
    coverage: float = setting(
        0.0,
        "weight of the coverage loss on the attention of guided_layer and guided_head (0 = off; See 2017: 1)",
        "[0, inf)",
    )
    precision: str = setting(
        "float32",
        "precision on a GPU: float32, float32 with TF32 products, or mixed with bfloat16",
        ("float32", "tf32", "bf16"),
    )
    device: str = setting("auto", "cpu, cuda, or auto (a GPU if there is one)")
    capture: bool = setting(True, "on a GPU, record updates as CUDA graphs and replay them; batches have few shapes")

    validate_every: int = setting(0, "number of updates between validations; 0 = once per epoch", "[0, inf)")
    validate_sentences: int = setting(
        500, "maximum number of held-out sentences to translate in a validation", "[0, inf)"
    )
    validate_beam: int = setting(1, "beam width in validations; 1 = greedy, the fastest", "[1, inf)")
    save_every: int = setting(500, "number of updates between checkpoints", "[1, inf)")
    keep: int = setting(3, "number of latest checkpoints to keep, besides the best", "[1, inf)")
    average: int = setting(1, "number of latest checkpoints to average at the end; 1 = use the best one", "[1, inf)")
    best_by: str = setting(
        "bleu",
        "metric that selects the best checkpoint; ties are broken by the loss (a BLEU below 1 counts as 0)",
        ("bleu", "loss", "accuracy"),
    )
    patience: int = setting(
        0, "number of validations without improvement before training stops; 0 = never stop early", "[0, inf)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.guided_shift and not self.guided:
            raise ConfigError("train.guided_shift needs guided attention: set train.guided above 0, or leave it out.")
        if not (self.steps or self.epochs or self.minutes):
            raise ConfigError("Training needs an end: set train.steps, train.epochs or train.minutes above 0.")
        if self.average > self.keep:
            raise ConfigError(
                f"train.average ({self.average}) needs as many checkpoints; set train.keep to {self.average} or more."
            )
