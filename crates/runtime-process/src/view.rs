//! What exists inside, as data: system directories, devices, and what of `/proc` is taken away.
//!
//! This is a list of what is shown, not of what is hidden: a directory nobody thought of is not there. In
//! particular `/run`, `/var/lib`, other homes and `/mnt`, with their sockets and secrets, are not.

/// Top-level names of the host that are shown read-only; links are shown as links.
pub(crate) const SYSTEM: &[&str] =
    &["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt", "nix", "gnu", "snap"];

/// Below `/var`, what package tools read.
pub(crate) const VAR: &[&str] = &["var/lib/dpkg", "var/lib/apt", "var/lib/rpm", "var/cache/fontconfig"];

pub(crate) const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];

/// Name and target, below `/dev`.
pub(crate) const DEVICE_LINKS: &[(&str, &str)] = &[
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Below `/proc`: settings and controls of the host's kernel, made read-only.
pub(crate) const PROC_READ_ONLY: &[&str] = &["sys", "sysrq-trigger", "irq", "bus", "fs"];

/// Below `/proc`: facts about the host's kernel and other users' keys, replaced by the null device.
pub(crate) const PROC_MASKED: &[&str] = &["kcore", "keys", "timer_list", "sched_debug", "kmsg"];

/// Below `/etc`: masked where the caller's groups would let the inside read them.
pub(crate) const ETC_MASKED: &[&str] = &[
    "shadow",
    "shadow-",
    "gshadow",
    "gshadow-",
    "sudoers",
    "sudoers.d",
    "ssl/private",
    "krb5.keytab",
    "ppp",
    "wireguard",
    "NetworkManager/system-connections",
];

/// A directory of the caller's home that holds programs, not data: shown read-only if it exists.
/// The second column names what of it stays away, because it holds credentials.
pub(crate) const TOOLCHAINS: &[(&str, &[&str])] = &[
    (".cargo", &["credentials", "credentials.toml"]),
    (".rustup", &[]),
    (".pyenv", &[]),
    (".nvm", &[]),
    (".volta", &[]),
    (".fnm", &[]),
    (".local/share/fnm", &[]),
    (".asdf", &[]),
    (".local/share/mise", &[]),
    (".sdkman", &[]),
    (".rbenv", &[]),
    (".bun", &[]),
    (".deno", &[]),
    (".npm-global", &[]),
    (".local/bin", &[]),
    (".local/lib", &[]),
    (".local/pipx", &[]),
    (".local/share/pipx", &[]),
    (".local/share/uv", &[]),
    (".local/share/pnpm", &[]),
    (".local/share/claude", &[]),
    ("go", &[]),
    ("miniconda3", &[]),
    ("anaconda3", &[]),
    ("bin", &[]),
];

/// Names in a work dir that hold credentials: at its top, or below it where the name alone says so.
pub(crate) const HIDDEN_AT_TOP: &[&str] = &[
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".docker",
    ".password-store",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".git-credentials",
    ".vault-token",
    ".config/gcloud",
    ".config/gh",
    ".config/hub",
    ".config/doctl",
    ".config/rclone",
    ".terraform.d/credentials.tfrc.json",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".claude/.credentials.json",
    ".claude.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".local/share/keyrings",
    ".mozilla",
    ".config/chromium",
    ".config/google-chrome",
    ".bash_history",
    ".zsh_history",
];

/// The same, at any depth.
pub(crate) const HIDDEN_ANYWHERE: &[&str] = &[
    ".env",
    ".env.local",
    ".env.production",
    ".env.staging",
    ".env.development",
    ".envrc",
    ".netrc",
    ".pgpass",
    "id_rsa",
    "id_ed25519",
    "id_ecdsa",
    "credentials.json",
    "service-account.json",
];

/// Directories that are not searched for hidden names: large, and made by tools.
pub(crate) const NOT_SEARCHED: &[&str] = &[
    ".git",
    "node_modules",
    "target",
    ".venv",
    "venv",
    "__pycache__",
    "vendor",
    "dist",
    "build",
    ".tox",
    ".next",
];
