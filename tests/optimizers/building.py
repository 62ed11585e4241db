"""fairseq's configuration of an optimizer."""

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.configs import FairseqConfig
from omegaconf import DictConfig, OmegaConf


def configuration(optimizer: FairseqDataclass, **common) -> DictConfig:
    """An optimizer, settings of the group ``common``, and defaults."""
    cfg = OmegaConf.structured(FairseqConfig)
    cfg.common.update(common)
    cfg.optimizer = optimizer
    return cfg
