"""The [train] section: how long, with what, and how often to validate and save."""

from dataclasses import dataclass

from regard.config import check_range, setting
from regard.errors import ConfigError
from regard.training.optimisers import OPTIMISERS
from regard.training.schedules import SCHEDULES


@dataclass(frozen=True)
class TrainConfig:
    """Settings of the training loop. A model's preset may change these defaults (its recipe)."""

    steps: int = setting(0, "updates in all; 0 = as many as `epochs` gives")
    epochs: int = setting(10, "times through the corpus, where `steps` is 0")
    minutes: float = setting(0.0, "stop, saved and finished, after this many minutes; 0 = no limit")
    batch_tokens: int = setting(4096, "most tokens on the longer side of a batch, padding counted")
    accumulate: int = setting(1, "batches whose gradients are summed into one update")
    seed: int = setting(1, "seed of the initial weights, the order of batches and dropout")
    start_from: str = setting("", "a run folder whose weights to start with; its model and vocabulary are taken over")

    optimiser: str = setting("adam", "rule of the updates", tuple(OPTIMISERS))
    rate: float = setting(0.001, "learning rate at its highest (Noam: a factor on the paper's formula)")
    momentum: float = setting(0.0, "share of the last update that SGD and RMSProp add to the next")
    beta2: float = setting(0.999, "Adam's memory of squared gradients (0.98 for the Transformer)")
    weight_decay: float = setting(0.0, "AdamW's decay of the weights")
    schedule: str = setting("constant", "how the rate moves", tuple(SCHEDULES))
    warmup: int = setting(0, "updates over which the rate rises")
    halve_after: float = setting(5.0, "halving: epochs before the first halving")
    halve_every: float = setting(1.0, "halving: epochs between halvings")
    decay: float = setting(0.85, "decay: what the rate is multiplied by after each epoch")
    clip: float = setting(1.0, "longest gradient, longer ones are scaled down to it; 0 = no clipping")
    normalise: str = setting("tokens", "the loss is divided by tokens or by sentences", ("tokens", "sentences"))
    label_smoothing: float = setting(0.0, "share of the probability spread over all words")
    consistency: float = setting(
        0.0, "R-Drop: weight of the divergence between two passes with different dropout (0 = off, 5 usual)"
    )
    guided: float = setting(0.0, "weight of the loss that pulls attention towards data.alignment (0 = off, 0.05 usual)")
    guided_layer: int = setting(-2, "layer of attention that is guided, from 0; -1 is the last, -2 the one before it")
    guided_head: int = setting(0, "its head that is guided, from 0; -1 = the mean of its heads")
    coverage: float = setting(
        0.0, "weight of the coverage loss on the attention of guided_layer and guided_head (0 = off; See 2017: 1)"
    )
    precision: str = setting(
        "float32",
        "arithmetic on a GPU: float32, with products in TF32 (a short mantissa), or mixed with bfloat16",
        ("float32", "tf32", "bf16"),
    )
    device: str = setting("auto", "cpu, cuda, or auto: the GPU where there is one")
    capture: bool = setting(True, "on a GPU, record updates as CUDA graphs and replay them; batches have few shapes")

    validate_every: int = setting(0, "updates between validations; 0 = once an epoch")
    validate_sentences: int = setting(500, "most held-out sentences that are translated in a validation")
    validate_beam: int = setting(1, "beam width of a validation; 1 = greedy, the quickest")
    save_every: int = setting(500, "updates between checkpoints")
    keep: int = setting(3, "newest checkpoints that are kept, besides the best")
    average: int = setting(1, "newest checkpoints whose weights are averaged at the end; 1 = the best one alone")
    best_by: str = setting(
        "bleu",
        "what makes a checkpoint the best; where it is the same, the loss decides (a BLEU below 1 counts as 0)",
        ("bleu", "loss", "accuracy"),
    )
    patience: int = setting(0, "validations without a new best before training stops; 0 = never")

    def __post_init__(self) -> None:
        counts = ("steps", "epochs", "warmup", "validate_every", "validate_sentences", "patience")
        weights = ("clip", "minutes", "weight_decay", "halve_after", "consistency", "guided", "coverage")
        check_range("train", self, "[0, inf)", *counts, *weights)
        check_range(
            "train", self, "[1, inf)", "batch_tokens", "accumulate", "save_every", "keep", "average", "validate_beam"
        )
        check_range("train", self, "(0, inf)", "rate", "halve_every")
        check_range("train", self, "[0, 1)", "momentum", "beta2", "label_smoothing")
        check_range("train", self, "(0, 1]", "decay")
        if self.guided_head < -1:
            raise ConfigError(f"train.guided_head counts from 0, or is -1 for the mean; got {self.guided_head}.")
        if not (self.steps or self.epochs or self.minutes):
            raise ConfigError("Training needs an end: set train.steps, train.epochs or train.minutes above zero.")
        if self.average > self.keep:
            raise ConfigError(
                f"train.average ({self.average}) needs as many checkpoints; set train.keep to {self.average} or more."
            )
