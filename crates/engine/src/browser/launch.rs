//! How a session's browser is started: which program, with which flags. It listens nowhere: it is spoken to by its
//! own standard streams, which nobody inside holds but itself.

use crate::error::EngineError;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Names that Chromium goes by, the first that is found.
const PROGRAMS: &[&str] =
    &["chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome", "headless_shell"];

/// Its own files, in the inside's own temporary directory.
const PROFILE: &str = "/tmp/.cofferdam-browser";

/// What it would do of its own accord stays undone: nobody asked for it, and a policy would refuse each of them.
const FLAGS: &[&str] = &[
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-client-side-phishing-detection",
    "--disable-component-extensions-with-background-pages",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-features=AutofillServerCommunication,CertificateTransparencyComponentUpdater,DialMediaRouteProvider,InterestFeedContentSuggestions,MediaRouter,NetworkTimeServiceQuerying,OptimizationGuideModelDownloading,OptimizationHints,PasswordLeakDetection,Translate",
    "--disable-field-trial-config",
    "--disable-gpu",
    "--disable-search-engine-choice-screen",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--metrics-recording-only",
    "--mute-audio",
    "--no-pings",
    "--password-store=basic",
    "--use-mock-keychain",
    "--component-updater=url-source=http://127.0.0.1:9/",
    "--apps-gallery-update-url=http://127.0.0.1:9/",
    "about:blank",
];

/// No flag says these: who fills in a field would have it fetch a dictionary first, and ask whether a password is known.
const PREFERENCES: &str = r#"{"browser":{"enable_spellchecking":false},"credentials_enable_service":false,
"profile":{"password_manager_enabled":false,"password_manager_leak_detection":false},"safebrowsing":{"enabled":false},
"spellcheck":{"dictionary":"","dictionaries":[],"use_spelling_service":false}}"#;

/// The shell puts its own input and output where the browser looks for them.
const SHELL: &str = r#"d=$1; p=$2; shift 2
mkdir -p "$d/Default" && [ -e "$d/Default/Preferences" ] || printf %s "$p" > "$d/Default/Preferences"
exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null"#;

/// The system's, which is shown inside whoever the caller is.
pub(super) fn find() -> Result<String, EngineError> {
    let places = ["/usr/local/bin", "/usr/bin", "/bin"].map(Path::new);
    let found: Option<PathBuf> =
        PROGRAMS.iter().find_map(|name| places.iter().map(|dir| dir.join(name)).find(|at| at.is_file()));
    match found.as_deref().and_then(Path::to_str) {
        Some(found) => Ok(found.to_owned()),
        None => Err(EngineError::NoBrowser),
    }
}

/// `key` is the digest of the public key of the session's certificates, in base64.
pub(super) fn command(program: &str, own_sandbox: bool, proxy: SocketAddr, key: &str) -> Vec<String> {
    let mut argv: Vec<String> =
        ["/bin/sh", "-c", SHELL, program, PROFILE, PREFERENCES].map(str::to_owned).to_vec();
    argv.push(format!("--user-data-dir={PROFILE}"));
    argv.push(format!("--proxy-server=http://{proxy}"));
    // The certificates of this key are the session's own; behind them the proxy checks whoever it speaks to.
    argv.push(format!("--ignore-certificate-errors-spki-list={key}"));
    if !own_sandbox {
        argv.push("--no-sandbox".to_owned());
    }
    argv.extend(FLAGS.iter().map(|flag| (*flag).to_owned()));
    argv
}
