//! Understands what passes between an agent and the world: model APIs, tools, the browser, workflow steps; and
//! answers from a recording. It sees bytes that others carry; it opens no connection of its own.
