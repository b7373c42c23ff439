//! Which texts look like a secret: data, with the reason and an example on every line.
//!
//! An example shows the shape and opens nothing. Expressions start with their literals, know no Unicode and have no
//! look-around: what stands before and after a match is judged by [`super::stream`].

use cofferdam_policy::Class;

pub(crate) struct Shape {
    /// As it stands in a finding.
    pub(crate) name: &'static str,
    pub(crate) class: Class,
    /// What every match starts with. A text without any of these is not looked at twice.
    pub(crate) literals: &'static [&'static str],
    pub(crate) pattern: &'static str,
    /// Whether a letter or digit before the match means that it is part of something else.
    pub(crate) alone: bool,
    pub(crate) reason: &'static str,
    /// Found by the test that holds this table.
    #[cfg_attr(not(test), expect(dead_code))]
    pub(crate) example: &'static str,
}

const fn shape(
    name: &'static str,
    class: Class,
    literals: &'static [&'static str],
    pattern: &'static str,
    reason: &'static str,
    example: &'static str,
) -> Shape {
    Shape { name, class, literals, pattern, alone: true, reason, example }
}

#[rustfmt::skip]
pub(crate) const SHAPES: &[Shape] = &[
    shape("aws-access-key", Class::Cloud, &["AKIA", "ASIA"], "A[KS]IA[A-Z2-7]{16}",
        "names an AWS account, and comes with its secret", "AKIA2345ABCDEFGH67WX"),
    Shape { name: "aws-secret-key", class: Class::Cloud, literals: SECRET,
        pattern: r#"(?i:secret_?access_?key)\\?["']?\s{0,4}[:=]\s{0,4}\\?["']?[A-Za-z0-9/+]{40}"#, alone: false,
        reason: "signs as an AWS account", example: "aws_secret_access_key = abcdefghij/KLMNOPQRST+0123456789uvwxyzAB" },
    shape("google-api-key", Class::Cloud, &["AIza"], "AIza[0-9A-Za-z_-]{35}",
        "spends a Google project's quota", "AIza0123456789abcdefghijABCDEFGHIJ-_012"),
    shape("google-oauth-token", Class::Cloud, &["ya29."], r"ya29\.[0-9A-Za-z_-]{30,400}",
        "acts as a Google user for an hour", "ya29.a0AbCdEfGhIjKlMnOpQrStUvWxYz0123456"),
    shape("google-client-secret", Class::Cloud, &["GOCSPX-"], "GOCSPX-[0-9A-Za-z_-]{28}",
        "lets an application pose as another", "GOCSPX-0123456789abcdefghijABCDEFGH"),
    shape("azure-storage-key", Class::Cloud, &["AccountKey="], "AccountKey=[A-Za-z0-9+/]{86}==",
        "opens a storage account", "AccountKey=0123456789012345678901234567890123456789012345678901234567890123456789abcdefghijKLMNOP=="),
    shape("azure-shared-access-key", Class::Cloud, &["SharedAccessKey="], "SharedAccessKey=[A-Za-z0-9+/]{43}=",
        "opens a bus or a hub", "SharedAccessKey=0123456789012345678901234567890123456789abc="),
    shape("digitalocean-token", Class::Cloud, &["dop_v1_"], "dop_v1_[0-9a-f]{64}",
        "administers a cloud account", "dop_v1_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
    shape("slack-token", Class::Cloud, &["xox", "xapp-"], "x(?:ox[bpars]|app)-[0-9A-Za-z-]{20,250}",
        "reads and writes a workspace", "xoxb-012345678901-0123456789012-abcdefghijABCDEFGHIJ0123"),
    shape("slack-webhook", Class::Cloud, &["hooks.slack.com/services/"], "hooks\\.slack\\.com/services/T[0-9A-Z]{6,14}/B[0-9A-Z]{6,14}/[0-9A-Za-z]{16,40}",
        "posts into a channel", "hooks.slack.com/services/T0123ABCD/B0123ABCD/abcdefghijABCDEFGHIJ0123"),
    Shape { name: "twilio-secret", class: Class::Cloud, literals: &["twilio", "TWILIO", "Twilio"],
        pattern: r#"(?i:twilio[a-z_]{0,20})\\?["']?\s{0,4}[:=]\s{0,4}\\?["']?(?:SK)?[0-9a-f]{32}"#, alone: false,
        reason: "sends messages at someone's expense", example: "TWILIO_AUTH_TOKEN=0123456789abcdef0123456789abcdef" },
    shape("sendgrid-key", Class::Cloud, &["SG."], r"SG\.[0-9A-Za-z_-]{22}\.[0-9A-Za-z_-]{43}",
        "sends mail in someone's name", "SG.0123456789abcdefghijAB.0123456789012345678901234567890123456789abc"),
    shape("github-token", Class::Vcs, &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"], "gh[pousr]_[0-9A-Za-z]{36}",
        "reads and writes repositories", "ghp_0123456789abcdefghijABCDEFGHIJ012345"),
    shape("github-fine-token", Class::Vcs, &["github_pat_"], "github_pat_[0-9A-Za-z]{22}_[0-9A-Za-z]{59}",
        "reads and writes repositories", "github_pat_0123456789abcdefghijAB_01234567890123456789012345678901234567890123456789abcdefghi"),
    shape("gitlab-token", Class::Vcs, &["glpat-", "glptt-", "gldt-", "glrt-"], "gl(?:pat|ptt|dt|rt)-[0-9A-Za-z_.-]{20,120}",
        "reads and writes repositories", "glpat-0123456789abcdefghij"),
    shape("npm-token", Class::Vcs, &["npm_"], "npm_[0-9A-Za-z]{36}",
        "publishes packages that others run", "npm_0123456789abcdefghijABCDEFGHIJ012345"),
    shape("pypi-token", Class::Vcs, &["pypi-AgE"], "pypi-AgE[0-9A-Za-z_-]{50,250}",
        "publishes packages that others run", "pypi-AgEIcHlwaS5vcmcCJDAxMjM0NTY3ODkwMTIzNDU2Nzg5MDEyMzQ1Njc4OQ"),
    shape("stripe-key", Class::Payment, &["sk_live_", "rk_live_"], "[sr]k_live_[0-9A-Za-z]{20,120}",
        "moves money", "sk_live_0123456789abcdefghijABCD"),
    shape("stripe-webhook-secret", Class::Payment, &["whsec_"], "whsec_[0-9A-Za-z+/]{32,64}",
        "forges payment events", "whsec_0123456789abcdefghijABCDEFGHIJ01"),
    shape("shopify-token", Class::Payment, &["shpat_", "shpss_"], "shp(?:at|ss)_[0-9a-f]{32}",
        "administers a shop", "shpat_0123456789abcdef0123456789abcdef"),
    shape("openai-key", Class::Llm, &["sk-"], "sk-(?:proj-|svcacct-|admin-)[0-9A-Za-z_-]{40,200}|sk-[0-9A-Za-z]{20}T3BlbkFJ[0-9A-Za-z]{20}",
        "spends a model account", "sk-proj-0123456789abcdefghijABCDEFGHIJ0123456789"),
    shape("anthropic-key", Class::Llm, &["sk-"], "sk-ant-[a-z0-9]{2,12}-[0-9A-Za-z_-]{40,200}",
        "spends a model account", "sk-ant-api03-0123456789abcdefghijABCDEFGHIJ0123456789"),
    shape("huggingface-token", Class::Llm, &["hf_"], "hf_[0-9A-Za-z]{34,40}",
        "reads private models and data", "hf_0123456789abcdefghijABCDEFGHIJ0123"),
    shape("groq-key", Class::Llm, &["gsk_"], "gsk_[0-9A-Za-z]{52}",
        "spends a model account", "gsk_0123456789012345678901234567890123456789abcdefghijkl"),
    Shape { name: "private-key", class: Class::PrivateKey, literals: &["-----BEGIN "],
        pattern: r"-----BEGIN [A-Z0-9 ]{0,20}PRIVATE KEY(?: BLOCK)?-----(?:(?:[\r\n]|\\[nr])[\r\n\t ]*(?:[A-Za-z-]{3,20}: )?[0-9A-Za-z+/=,-]{1,100})*", alone: false,
        reason: "signs and opens whatever trusts it", example: "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END" },
    shape("age-key", Class::PrivateKey, &["AGE-SECRET-KEY-1"], "AGE-SECRET-KEY-1[0-9A-Z]{58}",
        "opens whatever was encrypted to it", "AGE-SECRET-KEY-10123456789012345678901234567890123456789ABCDEFGHIJKLMNOPQR"),
    shape("jwt", Class::Jwt, &["eyJ"], r"eyJ[0-9A-Za-z_-]{5,400}\.eyJ[0-9A-Za-z_-]{5,}\.[0-9A-Za-z_-]{16,}",
        "acts as its subject until it expires", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJub2JvZHkifQ.0123456789abcdefghijABCDEFGHIJ"),
    Shape { name: ASSIGNMENT, class: Class::Entropy, literals: NAMES,
        pattern: r#"(?i:key|secret|token|passwd|password)\\?["']?\s{0,4}[:=]\s{0,4}\\?["']?[0-9A-Za-z+/_=.~-]{20,200}"#, alone: false,
        reason: "a long random text under a telling name", example: "api_key = \"q7Xz0PmK3vLw9TtR5yBn1cHd\"" },
];

/// The start and the longest first part of a token whose parts are told from anything else by what follows them.
pub(crate) const JWT: (&str, usize) = ("eyJ", 403);
/// The name of the one shape whose value is judged by how random it is.
pub(crate) const ASSIGNMENT: &str = "assigned-secret";
/// The one shape that has no literal: see [`super::card`].
pub(crate) const CARD: &str = "card-number";

const SECRET: &[&str] = &["secret", "SECRET", "Secret"];
const NAMES: &[&str] = &[
    "key", "KEY", "Key", "secret", "SECRET", "Secret", "token", "TOKEN", "Token", "passw", "PASSW", "Passw",
];
