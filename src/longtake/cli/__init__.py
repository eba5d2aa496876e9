"""The command line: parse, wire, call; where errors end."""
