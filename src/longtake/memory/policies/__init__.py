"""The memory policies there are, a file each; `memory.registry` names them."""
