//! Claims: what a model's words assert, linked to where it was read.
