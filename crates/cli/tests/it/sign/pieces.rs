//! Bodies that are signed piece by piece: every signature is checked and made anew, and the store checks ours.

use super::{Stage, staged};

const CLIENT: &str = include_str!("pieces.py");

fn upload(stage: &Stage<'_>, mode: &str, fault: &str) -> String {
    stage.run(&["aws"], &["python3", "-c", CLIENT, mode, fault]).exits(0).out()
}

#[test]
fn every_piece_is_signed_with_the_real_key() {
    staged(|stage| {
        stage.add_right_aws(&[]);
        let data: Vec<u8> = (0..=255u8).cycle().take(300_000 / 256 * 256).collect();
        for mode in ["plain", "trailer"] {
            assert!(upload(stage, mode, "").starts_with("200"), "{mode}");
            assert_eq!(stage.stores.object(&format!("pieces/{mode} +ü")), Some(data.clone()), "{mode}");
        }
        // A clock that is days off is no matter: ours is signed with.
        assert!(upload(stage, "plain", "clock").starts_with("200"));
        stage.nothing_holds(&[stage.stores.key("aws_secret"), stage.stores.key("aws_id")]);
    });
}

#[test]
fn a_piece_that_was_changed_does_not_arrive() {
    staged(|stage| {
        stage.add_right_aws(&[]);
        for (mode, fault) in [("plain", "changed"), ("trailer", "changed"), ("trailer", "trailer")] {
            let out = upload(stage, mode, fault);
            assert!(out.starts_with("403 cofferdam: credential `aws`") || out == "cut\n", "{fault}: {out}");
            assert_eq!(stage.stores.object(&format!("pieces/{mode} {fault}+ü")), None, "{fault}");
            let told = stage.site.bodies("egress.refused");
            assert!(
                told[0]["detail"].as_str().unwrap().contains("signature of a piece does not fit"),
                "{told:?}"
            );
        }
    });
}

#[test]
fn with_a_wrong_key_the_store_refuses_it() {
    staged(|stage| {
        stage.add_aws(stage.stores.key("aws_id"), "anotherSecretThatTheStoreDoesNotKnow/000", &[]);
        for mode in ["plain", "trailer"] {
            let out = upload(stage, mode, "");
            let is_refused = out.starts_with("403") && out.contains("SignatureDoesNotMatch");
            // The store may close before all is sent, and take the answer with it.
            let is_broken_off = out.starts_with("502") && out.contains("broke off before it answered");
            assert!(is_refused || is_broken_off || out == "cut\n", "{mode}: {out}");
            let ended = stage.site.bodies("egress.ended");
            assert!(ended.iter().all(|body| body["status"] != 200), "{ended:?}");
        }
    });
}
