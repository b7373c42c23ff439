//! What keys of well-known services look like, as data. The prefix of a key is public and stays; everything
//! after it is drawn anew.

/// What the part after the prefix is drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    /// Letters and digits; what else there is stays in place.
    Base62,
    /// Letters, digits, `-` and `_`.
    Base64Url,
    Hex,
    /// `A`–`Z`, `2`–`7`.
    Base32,
    /// Whatever kinds of character the value has.
    Seen,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Format {
    pub(super) prefix: &'static str,
    pub(super) fill: Fill,
    /// The last six characters check the ones before: CRC-32 in base 62.
    pub(super) checked: bool,
    /// A constant of the format behind the prefix, which scanners and clients look for.
    pub(super) mark: &'static str,
}

const fn format(prefix: &'static str, fill: Fill) -> Format {
    Format { prefix, fill, checked: false, mark: "" }
}

const fn checked(prefix: &'static str) -> Format {
    Format { prefix, fill: Fill::Base62, checked: true, mark: "" }
}

const fn marked(prefix: &'static str, mark: &'static str) -> Format {
    Format { prefix, fill: Fill::Base64Url, checked: false, mark }
}

/// The longest prefix that fits decides, so the order says nothing.
pub(super) const FORMATS: &[Format] = &[
    // GitHub, npm
    checked("ghp_"),
    checked("gho_"),
    checked("ghu_"),
    checked("ghs_"),
    checked("ghr_"),
    checked("npm_"),
    checked("github_pat_"),
    format("glpat-", Fill::Base64Url),
    format("ATATT3", Fill::Base64Url),
    format("dckr_pat_", Fill::Base64Url),
    format("pypi-AgEIcHlwaS5vcmc", Fill::Base64Url),
    format("pypi-", Fill::Base64Url),
    // Models
    marked("sk-", "T3BlbkFJ"),
    marked("sk-proj-", "T3BlbkFJ"),
    marked("sk-svcacct-", "T3BlbkFJ"),
    marked("sk-admin-", "T3BlbkFJ"),
    marked("sk-ant-api03-", "AA"),
    marked("sk-ant-oat01-", "AA"),
    marked("sk-ant-ort01-", "AA"),
    marked("sk-ant-admin01-", "AA"),
    format("sk-or-v1-", Fill::Hex),
    format("AIza", Fill::Base64Url),
    format("gsk_", Fill::Base62),
    format("xai-", Fill::Base62),
    format("pplx-", Fill::Base62),
    format("hf_", Fill::Base62),
    format("r8_", Fill::Base62),
    // Google
    format("ya29.", Fill::Base64Url),
    format("GOCSPX-", Fill::Base64Url),
    // Payment
    format("sk_live_", Fill::Base62),
    format("sk_test_", Fill::Base62),
    format("rk_live_", Fill::Base62),
    format("rk_test_", Fill::Base62),
    format("whsec_", Fill::Base62),
    format("shpat_", Fill::Hex),
    // Messages: groups of digits, then letters, between dashes.
    format("xoxb-", Fill::Seen),
    format("xoxp-", Fill::Seen),
    format("xoxa-", Fill::Seen),
    format("xoxe.xoxp-", Fill::Seen),
    format("xapp-", Fill::Seen),
    format("SG.", Fill::Base64Url),
    // Clouds
    format("AKIA", Fill::Base32),
    format("ASIA", Fill::Base32),
    format("dop_v1_", Fill::Hex),
    format("dapi", Fill::Hex),
    format("hvs.", Fill::Base64Url),
    format("glsa_", Fill::Base62),
    // Work
    format("lin_api_", Fill::Base62),
    format("ntn_", Fill::Base62),
    format("PMAK-", Fill::Seen),
];

pub(super) fn of(text: &str) -> Option<&'static Format> {
    FORMATS.iter().filter(|format| text.starts_with(format.prefix)).max_by_key(|format| format.prefix.len())
}
