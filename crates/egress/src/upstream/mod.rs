//! The outside: whom we trust, which address a name may lead to, and connections that are kept for more than
//! one request.

pub(crate) mod dial;
pub(crate) mod pool;
pub(crate) mod trust;
