//! `cofferdam mcp`: an MCP server whose tools are a sandbox; `mcp wrap`: somebody else's server in a sandbox of its own.
//! Both for any client that starts servers by a command line. What goes in and out is the protocol's; remarks are on
//! stderr.

use crate::args::{Mcp, McpCommand, Own, Wrap};
use crate::command::conflict::left_out;
use crate::command::run::{self, BY};
use crate::command::session::staying;
use crate::command::trace_out::TraceOut;
use crate::output::{Failure, Output};
use cofferdam_engine::{Engine, EngineError, Run, ToolServer};
use cofferdam_model::Changes;
use cofferdam_server::{ToolSandbox, serve_tools};
use std::io;
use std::path::PathBuf;

pub(crate) fn run(home: Option<PathBuf>, mcp: Mcp, output: &Output) -> Result<u8, Failure> {
    match mcp.command {
        None => serve(&Engine::open(home)?, *mcp.own, output),
        Some(McpCommand::Wrap(wrap)) => self::wrap(home, *wrap, output),
        Some(McpCommand::Pins) => pins(&Engine::open(home)?, output),
        Some(McpCommand::Unpin { server }) => unpin(&Engine::open(home)?, &server),
    }
}

/// One sandbox for as long as the client is there. It ends with us, whatever ends us.
fn serve(engine: &Engine, own: Own, output: &Output) -> Result<u8, Failure> {
    let durable = own.asked.durable;
    let spec = staying(own.asked, &own.stay, own.ttl)?;
    not_asked(spec.changes)?;
    let keeps = spec.changes == Changes::Keep;
    let shown_at = spec.shown_at.clone();
    let session = engine.create_session(spec, BY.into(), durable, own.stay.from)?;
    // Without it nothing would end the session but its time.
    let attendance =
        engine.attend(&session).inspect_err(|_| _ = engine.kill_session(&session, Some(Changes::Discard)))?;
    let workdir = match shown_at {
        Some(place) => place,
        None => engine.session(&session)?.workdir,
    };
    output.remark(format!("session {session}: `cofferdam trace show {session}` tells what was done in it"));
    let sandbox = ToolSandbox::new(engine, session.clone(), workdir, keeps);
    let served = serve_tools(&sandbox, io::stdin().lock(), io::stdout());
    let decided = engine.kill_session(&session, None);
    drop(attendance);
    served?;
    match decided {
        Ok(decided) => decided.iter().for_each(|decided| left_out(decided, output)),
        // Its time was over, or somebody ended it.
        Err(EngineError::NotLive(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(0)
}

fn not_asked(changes: Changes) -> Result<(), Failure> {
    match changes {
        Changes::Ask => {
            let text =
                "--changes ask: the terminal belongs to the server and its client; say keep or discard";
            Err(Failure::Usage(text.into()))
        }
        _ => Ok(()),
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
    not_asked(spec.changes)?;
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
