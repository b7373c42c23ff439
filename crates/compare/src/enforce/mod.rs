//! Policy over a finished run: the same engine as live, and where values came from.
