//! The code interpreter of a sandbox: a small program that is given to it when somebody first asks for port 49999. It
//! runs inside, as the sandbox's user, with what the sandbox has: Python, and Node or bash for their languages.

use crate::app::State;
use crate::sandbox::Sandbox;
use cofferdam_engine::inside::{Inside, InsideError, Process, ProcessSpec};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The port that SDKs expect it on.
pub(crate) const PORT: u16 = 49999;
/// What it may take to come up on a machine that is busy.
const STARTING: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(10);

/// Reads its parts from its input, so that nothing of it lies about inside.
const BOOT: &str = "import sys,json; S=json.load(sys.stdin); exec(compile(S['server'],'kernel','exec'),{'__name__':'kernel','SOURCES':S})";

/// That of one sandbox, once it was asked for.
#[derive(Default)]
pub(crate) struct Interpreter(tokio::sync::Mutex<Option<Arc<Process>>>);

fn parts() -> String {
    json!({
        "server": include_str!("kernel/server.py"),
        "python": include_str!("kernel/python.py"),
        "node": include_str!("kernel/node.js"),
        "bash": include_str!("kernel/bash.sh"),
    })
    .to_string()
}

/// Has it run, if this sandbox's template has one. What goes wrong shows when the port is not open.
pub(crate) async fn ready(app: &State, sandbox: &Sandbox) {
    if !crate::template::has_interpreter(&sandbox.record().template) {
        return;
    }
    let mut running = sandbox.interpreter.0.lock().await;
    if running.as_ref().is_some_and(|process| !process.has_ended()) {
        return;
    }
    let Some(inside) = sandbox.session().and_then(|session| app.house.inside(&session, "interpreter")) else {
        return;
    };
    match start(sandbox, &inside).await {
        Ok(process) => *running = Some(process),
        Err(error) => app.log.warn(
            "the code interpreter could not be started",
            json!({ "sandbox": sandbox.id.to_string(), "why": error.to_string() }),
        ),
    }
}

async fn start(sandbox: &Sandbox, inside: &Inside) -> Result<Arc<Process>, InsideError> {
    let who = inside.account("user").await?;
    let record = sandbox.record().clone();
    let spec = ProcessSpec {
        argv: ["python3", "-c", BOOT].map(str::to_owned).into(),
        env: BTreeMap::from([
            ("E2B_SANDBOX".to_owned(), "true".to_owned()),
            ("E2B_SANDBOX_ID".to_owned(), record.id.to_string()),
            ("E2B_TEMPLATE_ID".to_owned(), record.template),
        ]),
        cwd: Some(who.home.clone()),
        who: Some(who),
        stdin: true,
        tag: Some("code-interpreter".to_owned()),
        ..ProcessSpec::default()
    };
    let (process, _) = inside.start(spec).await?;
    process.input(parts().into()).await?;
    process.end_input().await?;
    let deadline = Instant::now() + STARTING;
    while !process.has_ended() && Instant::now() < deadline {
        if inside.connect(PORT).await.is_ok() {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(process)
}
