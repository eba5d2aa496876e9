"""The geometry models' bricks: attention blocks, rotary phases, patches."""
