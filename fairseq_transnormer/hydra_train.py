"""fairseq-hydra-train, with this package in the process that starts the workers, too.

fairseq imports ``common.user_dir`` in the workers alone, so that a signal would end the
process that they belong to (fairseq_patches/stopping.py).
"""

from fairseq_cli.hydra_train import cli_main

if __name__ == "__main__":
    cli_main()
