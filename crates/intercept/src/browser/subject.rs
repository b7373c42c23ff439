//! What a command of the protocol is to a person who reads the trace or writes a rule: an action with a name of
//! ours, something that only keeps client and browser going, or something that nobody may ask here. What is not
//! known is an action by the protocol's own name, so that a rule decides.

use super::element::Look;
use super::state::Keeps;
use serde_json::{Map, Value, json};

/// Domains that change nothing and read no page: they set up, measure and tell.
const PASSING: &[&str] = &[
    "Animation",
    "Audits",
    "CSS",
    "Console",
    "Debugger",
    "DOMDebugger",
    "DeviceAccess",
    "DeviceOrientation",
    "Emulation",
    "EventBreakpoints",
    "Fetch",
    "HeapProfiler",
    "IO",
    "Inspector",
    "LayerTree",
    "Log",
    "Media",
    "Memory",
    "Overlay",
    "Performance",
    "PerformanceTimeline",
    "Profiler",
    "Schema",
    "Security",
    "ServiceWorker",
    "SystemInfo",
    "Tethering",
    "Tracing",
];

/// The same of domains that also act.
const PASSES: &[(&str, &[&str])] = &[
    ("Accessibility", &["enable", "disable"]),
    (
        "Browser",
        &[
            "getVersion",
            "getBrowserCommandLine",
            "getWindowForTarget",
            "getWindowBounds",
            "setWindowBounds",
            "setContentsSize",
            "setDownloadBehavior",
            "cancelDownload",
            "grantPermissions",
            "setPermission",
            "resetPermissions",
        ],
    ),
    (
        "DOM",
        &[
            "enable",
            "disable",
            "describeNode",
            "focus",
            "getBoxModel",
            "getContentQuads",
            "getFrameOwner",
            "getNodeForLocation",
            "getAttributes",
            "querySelector",
            "querySelectorAll",
            "pushNodesByBackendIdsToFrontend",
            "requestNode",
            "requestChildNodes",
            "resolveNode",
            "scrollIntoViewIfNeeded",
            "setInspectedNode",
        ],
    ),
    ("DOMSnapshot", &["enable", "disable"]),
    ("Input", &["setIgnoreInputEvents", "setInterceptDrags", "cancelDragging"]),
    (
        "Network",
        &[
            "enable",
            "disable",
            "emulateNetworkConditions",
            "setCacheDisabled",
            "clearBrowserCache",
            "setBypassServiceWorker",
            "setBlockedURLs",
            "setExtraHTTPHeaders",
            "setUserAgentOverride",
            "setAttachDebugStack",
            "getSecurityIsolationStatus",
            "enableReportingApi",
        ],
    ),
    (
        "Page",
        &[
            "enable",
            "disable",
            "bringToFront",
            "createIsolatedWorld",
            "getFrameTree",
            "getLayoutMetrics",
            "getNavigationHistory",
            "getResourceTree",
            "getAppManifest",
            "getInstallabilityErrors",
            "removeScriptToEvaluateOnNewDocument",
            "screencastFrameAck",
            "setBypassCSP",
            "setDownloadBehavior",
            "setFontFamilies",
            "setFontSizes",
            "setInterceptFileChooserDialog",
            "setLifecycleEventsEnabled",
            "setWebLifecycleState",
            "stopLoading",
            "stopScreencast",
            "waitForDebugger",
        ],
    ),
    (
        "Runtime",
        &[
            "enable",
            "disable",
            "addBinding",
            "removeBinding",
            "awaitPromise",
            "discardConsoleEntries",
            "getExceptionDetails",
            "getHeapUsage",
            "getIsolateId",
            "getProperties",
            "globalLexicalScopeNames",
            "releaseObject",
            "releaseObjectGroup",
            "runIfWaitingForDebugger",
            "setAsyncCallStackDepth",
            "setMaxCallStackSizeToCapture",
        ],
    ),
    ("Storage", &["getStorageKeyForFrame", "getStorageKey", "getUsageAndQuota"]),
    (
        "Target",
        &[
            "activateTarget",
            "autoAttachRelated",
            "detachFromTarget",
            "disposeBrowserContext",
            "getBrowserContexts",
            "getTargetInfo",
            "getTargets",
            "setAutoAttach",
            "setDiscoverTargets",
        ],
    ),
];

/// What would go past us, or end what is not the client's.
const NEVER: &[(&str, &str)] = &[
    ("Target.exposeDevToolsProtocol", "it would give a page this protocol past the record"),
    ("Target.sendMessageToTarget", "messages within messages are not read: use flat sessions"),
    ("Target.setRemoteLocations", "there is one browser here"),
    ("Browser.crash", "the browser belongs to the session"),
    ("Browser.crashGpuProcess", "the browser belongs to the session"),
    ("Browser.executeBrowserCommand", "it acts on the browser itself"),
];

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Act {
    pub(super) action: String,
    /// Where it leads, unless that is the page itself.
    pub(super) url: Option<String>,
    pub(super) args: Map<String, Value>,
    pub(super) keeps: Keeps,
    pub(super) sort: Sort,
}

/// What has to be known of an action besides its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sort {
    Plain,
    /// A button of the mouse goes down.
    Press,
    /// A text into a field, all at once or a key of it.
    Text(String),
    Key(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Subject {
    Passes,
    Never(&'static str),
    Acts(Act, Option<Look>),
    /// A script in a world of a library's own.
    Script(String),
    /// It ends what the client made, and the client.
    Closes,
    /// A button of the mouse comes up.
    Releases,
    MakesContext,
    /// On this target.
    Attaches(String),
}

fn act(action: &str, args: Value) -> Act {
    let args = if let Value::Object(map) = args { map } else { Map::new() };
    Act { action: action.to_owned(), url: None, args, keeps: Keeps::Nothing, sort: Sort::Plain }
}

fn acts(action: &str, args: Value) -> Subject {
    Subject::Acts(act(action, args), None)
}

fn reads(action: &str, keeps: Keeps, args: Value) -> Subject {
    Subject::Acts(Act { keeps, ..act(action, args) }, None)
}

fn goes(url: &str) -> Subject {
    Subject::Acts(Act { url: Some(url.to_owned()), ..act("navigate", json!({})) }, None)
}

impl Subject {
    /// `is_own` says whether a world of this number is a library's own, and not the page's.
    pub(super) fn of(method: &str, params: &Value, is_own: impl Fn(i64) -> bool) -> Self {
        if let Some((_, why)) = NEVER.iter().find(|(name, _)| *name == method) {
            return Self::Never(why);
        }
        let text = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default();
        let (domain, name) = method.split_once('.').unwrap_or((method, ""));
        match (domain, name) {
            ("Browser", "close") => Self::Closes,
            ("Target", "createBrowserContext") => Self::MakesContext,
            ("Target", "attachToTarget" | "setAutoAttach" | "autoAttachRelated")
                if params.get("flatten").and_then(Value::as_bool) != Some(true)
                    && params.get("autoAttach").and_then(Value::as_bool) != Some(false) =>
            {
                Self::Never("messages within messages are not read: use flat sessions (`flatten`)")
            }
            ("Target", "attachToTarget") => Self::Attaches(text("targetId").to_owned()),
            ("Target", "attachToBrowserTarget") => Self::Attaches(String::new()),
            ("Target", "createTarget") => open(text("url")),
            ("Target", "closeTarget") | ("Page", "close") => acts("close", json!({})),
            ("Page", "navigate") => goes(text("url")),
            ("Page", "reload" | "navigateToHistoryEntry") => acts("navigate", json!({ "how": name })),
            ("Page", "handleJavaScriptDialog") => {
                let accept = params.get("accept").and_then(Value::as_bool).unwrap_or_default();
                acts("dialog", json!({ "accept": accept, "text": text("promptText") }))
            }
            ("Page", "captureScreenshot" | "startScreencast") => {
                reads("screenshot", Keeps::Picture, json!({}))
            }
            ("Page", "captureSnapshot" | "printToPDF" | "getResourceContent" | "searchInResource")
            | ("DOMSnapshot", "captureSnapshot" | "getSnapshot")
            | ("DOM", "getDocument" | "getFlattenedDocument" | "performSearch" | "getSearchResults") => {
                reads("read", Keeps::Nothing, json!({ "what": method }))
            }
            ("DOM", "getOuterHTML")
            | ("Network", "getResponseBody" | "getRequestPostData")
            | (
                "Accessibility",
                "getFullAXTree" | "getPartialAXTree" | "getRootAXNode" | "getChildAXNodes" | "queryAXTree",
            ) => reads("read", Keeps::Whole, json!({ "what": method })),
            ("DOM", "setFileInputFiles") => upload(params),
            ("Network", "getCookies" | "getAllCookies" | "setCookie" | "setCookies" | "deleteCookies")
            | ("Network", "clearBrowserCookies")
            | ("Storage", "getCookies" | "setCookies" | "clearCookies") => {
                acts("cookies", json!({ "how": name }))
            }
            ("Fetch", "enable") => acts("route", json!({})),
            ("Input", _) => input(name, params).unwrap_or_else(|| by_name(method)),
            ("Runtime", "evaluate" | "callFunctionOn" | "compileScript" | "runScript")
            | ("Debugger", "evaluateOnCallFrame" | "setScriptSource")
            | ("Page", "addScriptToEvaluateOnNewDocument") => script(name, params, is_own),
            _ => by_name(method),
        }
    }
}

fn by_name(method: &str) -> Subject {
    let (domain, name) = method.split_once('.').unwrap_or((method, ""));
    // To listen to a domain is to do nothing with it.
    let passes = matches!(name, "enable" | "disable")
        || PASSING.contains(&domain)
        || PASSES.iter().any(|(known, names)| *known == domain && names.contains(&name));
    if passes { Subject::Passes } else { acts(&crate::kept::clipped(method, 100), json!({})) }
}

/// An empty page leads nowhere.
fn open(url: &str) -> Subject {
    match url {
        "" | "about:blank" => acts("open", json!({})),
        url => goes(url),
    }
}

fn upload(params: &Value) -> Subject {
    let look = params.get("objectId").and_then(Value::as_str).map(|id| Look::Object(id.to_owned()));
    Subject::Acts(act("upload", json!({ "files": params.get("files") })), look)
}

fn input(name: &str, params: &Value) -> Option<Subject> {
    let text = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default();
    let number = |name: &str| params.get(name).and_then(Value::as_f64).unwrap_or_default();
    let at = Some(Look::At(number("x"), number("y")));
    let press = |button: &str, clicks: i64| {
        let mut click = act("click", json!({ "button": button }));
        if clicks > 1 {
            click.args.insert("clicks".into(), clicks.into());
        }
        Act { sort: Sort::Press, ..click }
    };
    Some(match (name, text("type")) {
        ("dispatchMouseEvent" | "emulateTouchFromMouseEvent", "mousePressed") => {
            let clicks = params.get("clickCount").and_then(Value::as_i64).unwrap_or(1);
            Subject::Acts(press(text("button"), clicks), at)
        }
        ("dispatchMouseEvent" | "emulateTouchFromMouseEvent", "mouseReleased") => Subject::Releases,
        ("dispatchMouseEvent", "mouseMoved") => Subject::Passes,
        ("dispatchMouseEvent" | "emulateTouchFromMouseEvent", "mouseWheel") => {
            let by = json!({ "x": number("deltaX"), "y": number("deltaY") });
            Subject::Acts(act("scroll", by), at)
        }
        ("dispatchTouchEvent", "touchStart") => {
            let point = params.pointer("/touchPoints/0");
            let of = |name| point.and_then(|p| p.get(name)).and_then(Value::as_f64).unwrap_or_default();
            Subject::Acts(press("touch", 1), Some(Look::At(of("x"), of("y"))))
        }
        ("dispatchTouchEvent", "touchEnd") => Subject::Releases,
        ("dispatchTouchEvent", "touchMove" | "touchCancel") => Subject::Passes,
        ("dispatchDragEvent", "drop") => Subject::Acts(act("drop", json!({})), at),
        ("dispatchDragEvent", "dragEnter" | "dragOver" | "dragCancel") => Subject::Passes,
        ("synthesizeTapGesture", _) => Subject::Acts(press("touch", 1), at),
        ("synthesizeScrollGesture" | "synthesizePinchGesture", _) => {
            Subject::Acts(act("scroll", json!({})), at)
        }
        ("insertText" | "imeSetComposition", _) => {
            let sort = Sort::Text(text("text").to_owned());
            Subject::Acts(Act { sort, ..act("fill", json!({})) }, Some(Look::Focused))
        }
        ("dispatchKeyEvent", "keyUp") => Subject::Passes,
        ("dispatchKeyEvent", "keyDown" | "rawKeyDown" | "char") => key(params),
        _ => return None,
    })
}

/// A letter is part of a text; anything else is a key of its own.
fn key(params: &Value) -> Subject {
    let modifiers = params.get("modifiers").and_then(Value::as_u64).unwrap_or_default();
    let of = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut letters = of("text").chars();
    let sort = match (letters.next(), letters.next(), modifiers & 0b111) {
        (Some(letter), None, 0) if !letter.is_control() => Sort::Key(letter.to_string()),
        _ => Sort::Plain,
    };
    if let Sort::Key(letter) = sort {
        return Subject::Acts(Act { sort: Sort::Key(letter), ..act("type", json!({})) }, Some(Look::Focused));
    }
    let held = [(1, "Alt+"), (2, "Control+"), (4, "Meta+"), (8, "Shift+")];
    let held: String = held.iter().filter(|(bit, _)| modifiers & bit != 0).map(|(_, name)| *name).collect();
    let name = [of("key"), of("code"), of("text")].into_iter().find(|name| !name.is_empty()).unwrap_or("?");
    let name = crate::kept::clipped(name, 40);
    Subject::Acts(act("press", json!({ "key": format!("{held}{name}") })), Some(Look::Focused))
}

/// What runs, and in whose world. Libraries choose options of a list by a script, which is a choice all the same.
fn script(name: &str, params: &Value, is_own: impl Fn(i64) -> bool) -> Subject {
    let text = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default();
    let function = text("functionDeclaration");
    let arguments = params.get("arguments").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let given = arguments.iter().filter_map(|argument| argument.get("value"));
    // Playwright hands what it runs to a function of its own.
    let wrapped = given.clone().find_map(Value::as_str).filter(|_| function.contains("utilityScript"));
    let source = wrapped.or_else(|| {
        [function, text("expression"), text("source"), text("scriptSource")]
            .into_iter()
            .find(|s| !s.is_empty())
    });
    let Some(source) = source else { return Subject::Passes };
    if source.contains("injected.selectOptions(")
        || (source.contains("HTMLSelectElement") && source.contains("selectedValues"))
    {
        let mut objects =
            arguments.iter().filter_map(|argument| argument.get("objectId").and_then(Value::as_str));
        let object = objects.next_back().or_else(|| params.get("objectId").and_then(Value::as_str));
        let mut chosen = Vec::new();
        given.filter(|value| value.as_str() != Some(source)).for_each(|value| words(value, &mut chosen));
        return Subject::Acts(
            act("select", json!({ "values": chosen })),
            object.map(|id| Look::Object(id.to_owned())),
        );
    }
    let world = match name {
        "addScriptToEvaluateOnNewDocument" => return by_world_name(text("worldName"), source),
        _ => params.get("contextId").and_then(Value::as_i64).or_else(|| world_of(text("objectId"))),
    };
    if world.is_some_and(is_own) {
        return Subject::Script(source.to_owned());
    }
    let told = json!({ "script": crate::kept::clipped(source, 1000), "bytes": source.len() });
    Subject::Acts(Act { keeps: Keeps::Value, ..act("evaluate", told) }, None)
}

fn by_world_name(world: &str, source: &str) -> Subject {
    if !world.is_empty() {
        return Subject::Script(source.to_owned());
    }
    acts("evaluate", json!({ "script": crate::kept::clipped(source, 1000), "bytes": source.len() }))
}

/// The browser's name for an object has the number of its world in the middle.
fn world_of(object: &str) -> Option<i64> {
    object.split('.').nth(1)?.parse().ok()
}

/// The words that a library's own way of writing values holds: its `v`s, or plain texts.
fn words(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) if found.len() < 20 => found.push(crate::kept::clipped(text, 200)),
        Value::Array(all) => all.iter().for_each(|value| words(value, found)),
        Value::Object(map) => map
            .iter()
            .filter(|(name, value)| !matches!(name.as_str(), "k" | "id" | "h") && *value != "undefined")
            .for_each(|(_, value)| words(value, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(method: &str, params: Value) -> String {
        match Subject::of(method, &params, |world| world == 4) {
            Subject::Acts(act, look) => {
                let to = act.url.map(|url| format!(" {url}")).unwrap_or_default();
                let look = look.map(|look| format!(" {look:?}")).unwrap_or_default();
                format!("{}{to} {}{look}", act.action, Value::Object(act.args))
            }
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn commands_are_what_a_person_would_call_them() {
        let check = |method: &str, params: Value, expected: &str| assert_eq!(told(method, params), expected);
        check("Page.enable", json!({}), "Passes");
        check("Page.navigate", json!({"url": "https://a.example/"}), "navigate https://a.example/ {}");
        check("Target.createTarget", json!({"url": "about:blank"}), "open {}");
        check("Target.createTarget", json!({"url": "https://b.example"}), "navigate https://b.example {}");
        check(
            "Input.dispatchMouseEvent",
            json!({"type": "mousePressed", "x": 1, "y": 2.5, "button": "left", "clickCount": 2}),
            "click {\"button\":\"left\",\"clicks\":2} At(1.0, 2.5)",
        );
        check("Input.dispatchMouseEvent", json!({"type": "mouseMoved"}), "Passes");
        check("Input.insertText", json!({"text": "x"}), "fill {} Focused");
        check(
            "Input.dispatchKeyEvent",
            json!({"type": "keyDown", "text": "a", "key": "a"}),
            "type {} Focused",
        );
        check(
            "Input.dispatchKeyEvent",
            json!({"type": "keyDown", "text": "a", "key": "a", "modifiers": 2}),
            "press {\"key\":\"Control+a\"} Focused",
        );
        check(
            "Input.dispatchKeyEvent",
            json!({"type": "keyDown", "text": "\r", "key": "Enter"}),
            "press {\"key\":\"Enter\"} Focused",
        );
        check("Runtime.evaluate", json!({"expression": "1", "contextId": 4}), "Script(\"1\")");
        check("Runtime.evaluate", json!({"expression": "1"}), "evaluate {\"bytes\":1,\"script\":\"1\"}");
        check("Storage.clearDataForOrigin", json!({}), "Storage.clearDataForOrigin {}");
        check("Bogus", json!({}), "Bogus {}");
        assert!(told("Target.exposeDevToolsProtocol", json!({})).starts_with("Never"));
        assert!(told("Target.setAutoAttach", json!({"autoAttach": true})).starts_with("Never"));
        assert_eq!(told("Target.setAutoAttach", json!({"autoAttach": true, "flatten": true})), "Passes");
    }

    #[test]
    fn a_choice_by_script_is_a_choice() {
        let params = json!({
            "functionDeclaration": "(utilityScript, ...args) => utilityScript.evaluate(...args)",
            "objectId": "1.4.2",
            "arguments": [
                {"objectId": "1.4.2"}, {"value": true}, {"value": true},
                {"value": "async ([injected, node, o]) => injected.selectOptions(node, o)"},
                {"value": 2}, {"value": {"h": 0}}, {"value": {"a": [{"o": [{"k": "valueOrLabel", "v": "l"}], "id": 1}]}},
                {"objectId": "1.4.1"}, {"objectId": "1.4.9"}
            ]
        });
        let expected = "select {\"values\":[\"l\"]} Object(\"1.4.9\")";
        assert_eq!(told("Runtime.callFunctionOn", params), expected);
    }

    proptest::proptest! {
        #[test]
        fn any_command_is_something(method in "[A-Z][a-z]{0,8}\\.[a-zA-Z]{0,12}", text in "\\PC{0,40}") {
            let _ = told(&method, json!({ "type": text, "text": text, "objectId": text, "arguments": [{"value": [text]}] }));
        }
    }
}
