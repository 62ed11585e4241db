"""Training by a configuration: compose it, divide it among workers, and start.

Importing a module of this package does not import fairseq, so --help is fast.
"""
