//! What a template has run in every sandbox that is made of it.

use crate::app::State;
use crate::sandbox::Sandbox;
use cofferdam_engine::Heard;
use cofferdam_engine::inside::{Inside, InsideError, ProcessSpec};
use cofferdam_model::Exit;
use serde_json::json;
use std::time::{Duration, Instant};

/// A sandbox is told of at the latest after this, ready or not.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

/// Starts its command, and waits until it says that it is ready.
pub(crate) async fn begin(app: &State, sandbox: &Sandbox) {
    let adds = sandbox.record().adds.clone();
    let Some(start) = adds.start.clone().filter(|start| !start.is_empty()) else { return };
    let Some(inside) = sandbox.session().and_then(|session| app.house.inside(&session, "template")) else {
        return;
    };
    let done = async {
        drop(inside.start(spec(sandbox, &inside, &start).await?).await?);
        let Some(ready) = adds.ready.filter(|ready| !ready.is_empty()) else { return Ok(()) };
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let (_, mut attached) = inside.start(spec(sandbox, &inside, &ready).await?).await?;
            while let Some(heard) = attached.next().await {
                if let Heard::Ended(end) = heard {
                    match end.exit {
                        Ok(Exit::Code(0)) => return Ok(()),
                        _ => break,
                    }
                }
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok::<(), InsideError>(())
    };
    if let Err(error) = done.await {
        let fields = json!({ "sandbox": sandbox.id.to_string(), "why": error.to_string() });
        app.log.warn("the template's command could not be started", fields);
    }
}

async fn spec(sandbox: &Sandbox, inside: &Inside, command: &str) -> Result<ProcessSpec, InsideError> {
    let adds = sandbox.record().adds.clone();
    let who = inside.account(adds.user.as_deref().unwrap_or("user")).await?;
    Ok(ProcessSpec {
        argv: ["/bin/bash", "-l", "-c", command].map(str::to_owned).into(),
        cwd: Some(adds.workdir.map_or_else(|| who.home.clone(), Into::into)),
        who: Some(who),
        ..ProcessSpec::default()
    })
}
