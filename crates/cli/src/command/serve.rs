//! `cofferdam serve`: the service. One line for people, or one JSON object, when it serves; its log is on stderr.

use crate::args::Serve;
use crate::output::{Failure, Output};
use cofferdam_engine::Engine;
use cofferdam_server::{Config, Level, Line, Started, Tell};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

pub(crate) fn run(home: Option<PathBuf>, serve: Serve, output: &Output) -> Result<u8, Failure> {
    let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let config = Config::load(serve.config.as_deref(), env);
    let mut config = config.map_err(|error| Failure::Usage(error.to_string()))?;
    if let Some(listen) = serve.listen {
        config.listen = listen;
    }
    let engine = Engine::open(home)?;
    let least = match (output.quiet, output.verbose) {
        (true, _) => Level::Warn,
        (_, true) => Level::Debug,
        _ => Level::Info,
    };
    cofferdam_server::serve(engine, config, lines(least), |started| {
        // Who cannot read it can still use the service.
        let _ =
            if output.json { output.data(&one_line(started)) } else { output.data(&told(output, started)) };
        let _ = std::io::stdout().flush();
    })?;
    Ok(0)
}

fn lines(least: Level) -> Tell {
    Arc::new(move |line: Line| {
        if line.level < least {
            return;
        }
        let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
        if let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(&line) {
            let mut all = serde_json::Map::from_iter([("time".to_owned(), time.into())]);
            all.extend(fields);
            let _ = writeln!(std::io::stderr().lock(), "{}", serde_json::Value::Object(all));
        }
    })
}

fn one_line(started: &Started) -> String {
    serde_json::to_string(started).map(|text| text + "\n").unwrap_or_default()
}

fn told(output: &Output, started: &Started) -> String {
    let url = &started.url;
    let mut text = format!("serving on {}\n", output.paint(crate::output::Paint::Bold, url));
    if let (Some(api), Some(admin)) = (&started.api_key, &started.admin_key) {
        text += &format!(
            "
these keys are told only now; `cofferdam apikey create` makes others
  administrator: {admin}
  for programs:  {api}

for E2B's SDKs:
  export E2B_API_KEY={api}
  export E2B_API_URL={url}
  export E2B_SANDBOX_URL={url}
"
        );
    }
    text
}
