//! Groundedness: how well words rest on what was read before them, with the reasons.
