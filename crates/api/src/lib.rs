//! What goes over the wire, as plain data: E2B's control plane as its published SDKs speak it, the tools of MCP, and our own REST with
//! its OpenAPI document. No HTTP and no I/O: the server and a client meet in these types.

pub mod e2b;
pub mod mcp;
mod openapi;
mod routes;
pub mod v1;

pub use openapi::document;
pub use routes::{Operation, ROUTES, Reply};
