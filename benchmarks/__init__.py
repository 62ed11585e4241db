"""Speed and memory beside peers. Each benchmark is a command: see its module."""
