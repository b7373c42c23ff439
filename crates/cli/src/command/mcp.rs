//! `cofferdam mcp wrap`: an MCP server in a sandbox of its own, for any client that starts servers by a command
//! line. What goes in and out is the protocol's; remarks are on stderr, and the exit code is the server's own.

use crate::args::{Mcp, McpCommand, Wrap};
use crate::command::run::{self, BY};
use crate::command::trace_out::TraceOut;
use crate::output::{Failure, Output};
use cofferdam_engine::{Engine, Run, ToolServer};
use cofferdam_model::Changes;
use std::path::PathBuf;

pub(crate) fn run(home: Option<PathBuf>, mcp: Mcp, output: &Output) -> Result<u8, Failure> {
    match mcp.command {
        McpCommand::Wrap(wrap) => self::wrap(home, *wrap, output),
        McpCommand::Pins => pins(&Engine::open(home)?, output),
        McpCommand::Unpin { server } => unpin(&Engine::open(home)?, &server),
    }
}

fn pins(engine: &Engine, output: &Output) -> Result<u8, Failure> {
    let pinned = engine.pinned()?;
    if output.json {
        output.value(&pinned)?;
        return Ok(0);
    }
    for server in &pinned {
        output.data(&format!("{}\n    {}\n", server.server, server.tools.join(", ")))?;
    }
    Ok(0)
}

fn unpin(engine: &Engine, server: &str) -> Result<u8, Failure> {
    match engine.unpin(server)? {
        true => Ok(0),
        false => {
            let text = format!("no tools of `{server}` are pinned: `cofferdam mcp pins` lists whose are");
            Err(Failure::Usage(text))
        }
    }
}

fn wrap(home: Option<PathBuf>, wrap: Wrap, output: &Output) -> Result<u8, Failure> {
    let durable = wrap.asked.durable;
    let mut spec = run::spec(wrap.asked, wrap.command, Changes::Keep)?;
    if let (true, Some(tools), Some(tool)) = (spec.command.is_empty(), &spec.tools, &spec.tool) {
        spec.command = cofferdam_engine::declared_server(tools, tool)?;
    }
    if spec.changes == Changes::Ask {
        let text = "--changes ask: the terminal belongs to the server and its client; say keep or discard";
        return Err(Failure::Usage(text.into()));
    }
    let policy = spec.policy.clone();
    let engine = Engine::open(home)?;
    let trace_out = TraceOut::open(wrap.trace_out)?;
    let outcome = engine.run(Run {
        spec,
        stdio: run::stdio()?,
        tools: Some(ToolServer { repin: wrap.repin }),
        tty: false,
        durable,
        decide: &mut |_| false,
        ask: &crate::ask::hidden,
        by: BY.into(),
        stop: None,
    })?;
    if let Some(out) = trace_out {
        out.write(&engine, &outcome)?;
    }
    run::report(&outcome, output);
    run::denied(&outcome, policy.as_deref(), output);
    Ok(u8::try_from(outcome.exit.code().rem_euclid(256)).unwrap_or(1))
}
