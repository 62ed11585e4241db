"""Speed and memory compared with peers. Each benchmark is a command: see its module."""
