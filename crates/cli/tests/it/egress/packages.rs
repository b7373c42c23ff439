//! Tools that fetch code: git over https, pip from a private index, npm from a private registry.

use super::staged;

#[test]
fn git_clones_and_pushes_with_a_placeholder_for_a_password() {
    staged(|stage| {
        let branch = &stage.real[8..20];
        let script = format!(
            "set -e\n\
             git config --global user.name t; git config --global user.email t@corp.example\n\
             git clone -q \"https://agent:$KEY@git.corp.example/repository.git\" work\n\
             cat work/read-me; cd work; echo more > more; git add more; git commit -qm second\n\
             git push -q origin HEAD:refs/heads/{branch}\n\
             git config --global credential.helper '!f() {{ echo username=agent; echo \"password=$KEY\"; }}; f'\n\
             git ls-remote -q https://git.corp.example/repository.git refs/heads/{branch} | cut -f 2"
        );
        let out = stage.sh(&script).exits(0).out();
        assert_eq!(out, format!("from the private forge\nrefs/heads/{branch}\n"));
        let seen = stage.used("git.corp.example");
        assert!(seen.iter().any(|seen| seen["path"] == "/repository.git/git-receive-pack"), "{seen:#?}");
    });
}

#[test]
fn pip_installs_from_a_private_index() {
    staged(|stage| {
        let script = "set -e\n\
             pip3 install -q --no-cache-dir --disable-pip-version-check --target got \
                 --index-url \"https://agent:$KEY@pypi.corp.example/simple\" corp-tool\n\
             PYTHONPATH=got python3 -c 'import corp_tool; print(corp_tool.WORD)'";
        assert_eq!(stage.sh(script).exits(0).out(), "from the private index\n");
        let paths: Vec<_> = stage.used("pypi.corp.example").iter().map(|seen| seen["path"].clone()).collect();
        assert_eq!(paths, ["/simple/corp-tool/", "/files/corp_tool-1.0-py3-none-any.whl"]);
    });
}

#[test]
fn npm_installs_from_a_private_registry() {
    staged(|stage| {
        let script = "set -e\n\
             printf 'registry=https://npm.corp.example/\\n//npm.corp.example/:_authToken=${KEY}\\n' > ~/.npmrc\n\
             mkdir project; cd project; echo '{}' > package.json\n\
             npm install --silent --no-audit --no-fund --no-update-notifier corp-tool\n\
             node -e 'console.log(require(\"corp-tool\"))'";
        assert_eq!(stage.sh(script).exits(0).out(), "from the private registry\n");
        assert_eq!(stage.used("npm.corp.example").len(), 2);
    });
}

/// The same tools without the credential get nothing, and say so by their exit codes.
#[test]
fn without_the_credential_they_get_nothing() {
    staged(|stage| {
        let script = "GIT_TERMINAL_PROMPT=0 git clone -q https://git.corp.example/repository.git work; echo $?\n\
             pip3 install -q --no-cache-dir --disable-pip-version-check --no-input --target got \
                 --index-url https://pypi.corp.example/simple corp-tool; echo $?\n\
             npm install --silent --no-audit --no-fund --registry https://npm.corp.example/ corp-tool; echo $?";
        assert_eq!(stage.sh(script).exits(0).out(), "128\n1\n1\n");
        assert!(stage.server.seen_with(&stage.real).is_empty());
        assert!(stage.site.bodies("credential.used").is_empty());
    });
}
