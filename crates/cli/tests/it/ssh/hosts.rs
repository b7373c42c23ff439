//! A host that is not who it is known to be is not spoken to: it hears neither the user's name nor the key's.

use super::{RULES, Stage, staged_once};
use crate::BINARY;
use cofferdam_testkit::{Mode, SSH_HOST, Site, Sshd, is_root};
use std::fs;

/// The policy without a word on the host's key.
fn unsaid(stage: &Stage<'_>, known: &str) {
    fs::write(stage.policy(), format!("{}{known}{RULES}", stage.sshd.upstream())).unwrap();
}

#[test]
fn a_host_that_nobody_knows_is_refused_with_what_to_write() {
    staged_once(|stage| {
        unsaid(stage, "");
        let done = stage.sh("ssh $HOST echo up").done();
        let print = stage.sshd.fingerprint();
        let said = format!("`git.internal:22` shows the host key ssh-ed25519 {print}");
        assert!(done.code() == 126 && done.err().contains(&said), "{}", done.err());
        assert!(
            done.err().contains(&format!("[[known_host]] with host = \"{SSH_HOST}\" and key = \"{print}\""))
        );
        assert_eq!(stage.refused("host-key-unknown").len(), 1);
        assert!(!stage.sshd.log().contains("userauth-request"), "{}", stage.sshd.log());
        // What it says to write is what lets it pass.
        unsaid(stage, &format!("[[known_host]]\nhost = \"{SSH_HOST}\"\nkey = \"{print}\"\n"));
        assert_eq!(stage.sh("ssh $HOST echo up").exits(0).out(), "up\n");
    });
}

#[test]
fn a_host_with_another_key_is_refused_and_raises_an_alarm() {
    staged_once(|stage| {
        let other = Sshd::start("ed25519");
        unsaid(stage, &other.known());
        let done = stage.sh("ssh $HOST echo up").done();
        let (shown, known) = (stage.sshd.fingerprint(), other.fingerprint());
        let said = format!("shows the host key ssh-ed25519 {shown}, and is known by {known}");
        assert!(done.code() == 126 && done.err().contains(&said), "{}", done.err());
        let refused = stage.refused("host-key-changed");
        assert!(refused.len() == 1 && refused[0]["alarm"] == true, "{refused:#?}");
        assert!(!stage.sshd.log().contains("userauth-request"), "{}", stage.sshd.log());
        let shown = stage.site.call(&["trace", "show", "latest"]).exits(0).out();
        assert!(shown.contains("ALARM"), "{shown}");
    });
}

/// Where the policy is silent, the operator's own file of known hosts counts, hashed or not.
#[test]
fn the_operators_known_hosts_are_believed() {
    staged_once(|stage| {
        unsaid(stage, "");
        let file =
            stage.site.write("../home/.ssh/known_hosts", format!("{SSH_HOST} {}\n", stage.sshd.host_key()));
        assert_eq!(stage.sh("ssh $HOST echo up").exits(0).out(), "up\n");
        let mut hash = stage.site.command("ssh-keygen");
        assert_eq!(cofferdam_testkit::finish(hash.args(["-q", "-H", "-f"]).arg(&file)).code(), 0);
        assert!(fs::read_to_string(&file).unwrap().starts_with("|1|"));
        assert_eq!(stage.sh("ssh $HOST echo up").exits(0).out(), "up\n");
        let other = Sshd::start("ed25519");
        stage.site.write(&file, format!("{SSH_HOST} {}\n", other.host_key()));
        let done = stage.sh("ssh $HOST echo up").done();
        assert!(done.err().contains("and is known by"), "{}", done.err());
        stage.site.write(&file, format!("@revoked * {0}\n{SSH_HOST} {0}\n", stage.sshd.host_key()));
        let done = stage.sh("ssh $HOST echo up").done();
        assert!(done.err().contains("which was taken back"), "{}", done.err());
    });
}

#[test]
fn hosts_prove_themselves_by_every_usual_kind_of_key() {
    for kind in ["ecdsa", "rsa"] {
        let site = Site::new(if is_root() { Mode::Root } else { Mode::Single }, BINARY);
        let sshd = Sshd::start(kind);
        let stage = Stage { site: &site, sshd: &sshd };
        stage.rules(RULES);
        stage.add("agent");
        let done = stage.sh("ssh $HOST echo up").exits(0);
        assert_eq!(done.out(), "up\n", "{kind}: {}", done.err());
    }
}
