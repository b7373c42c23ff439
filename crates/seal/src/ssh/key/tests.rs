//! Keys as `ssh-keygen` writes them, and what is none.

use super::*;
use crate::ssh::verify;

/// Made by `ssh-keygen` for this test, and known to nobody's server.
const ED25519: &str = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZWQyNTUxOQAAACCwrCHqXjMnt2DN7B9rM2qgDsq5PTtLQElsYJ29hWnPxQAAAJAa4baOGuG2jgAAAAtzc2gtZWQyNTUxOQAAACCwrCHqXjMnt2DN7B9rM2qgDsq5PTtLQElsYJ29hWnPxQAAAEAylAUgx8OJGqvm5lUmMO9fgDJe6MzGr6Ux4jr1UfE3ubCsIepeMye3YM3sH2szaqAOyrk9O0tASWxgnb2Fac/FAAAAB2V4YW1wbGUBAgMEBQY=";
const P256: &str = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAaAAAABNlY2RzYS1zaGEyLW5pc3RwMjU2AAAACG5pc3RwMjU2AAAAQQSCulpGTjG/eJ17WtW0F1F/6uF+BObBQM9N/tOYWfRcnT0g21ASJ5J7m0PovlyGljWdfPYZs2oOge9hkk6kWIm5AAAAoES8w9lEvMPZAAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBIK6WkZOMb94nXta1bQXUX/q4X4E5sFAz03+05hZ9FydPSDbUBInknubQ+i+XIaWNZ189hmzag6B72GSTqRYibkAAAAgefUNq4EGY7Lsr5WdKN2aYFQIgEPYwIVoBGOqMZP8sRwAAAAHZXhhbXBsZQE=";
const P384: &str = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAiAAAABNlY2RzYS1zaGEyLW5pc3RwMzg0AAAACG5pc3RwMzg0AAAAYQRJl6/jUsUNlS2S8IBDHPVQJM3iJefJpoonCD5OZ7MoBLOMglhKAUIF1lvh1z47dObkpm93m1l3rJ15IcZIq8c0yD3Is761hvoweKPNOcA+ktiUqp4vc0yfTY1/+n/4vZsAAADQSwuYAksLmAIAAAATZWNkc2Etc2hhMi1uaXN0cDM4NAAAAAhuaXN0cDM4NAAAAGEESZev41LFDZUtkvCAQxz1UCTN4iXnyaaKJwg+TmezKASzjIJYSgFCBdZb4dc+O3Tm5KZvd5tZd6ydeSHGSKvHNMg9yLO+tYb6MHijzTnAPpLYlKqeL3NMn02Nf/p/+L2bAAAAMDXESihxC204Ru9EzpVgGIQLlWaQDhVeWSuwRt6NdE6lZHtY0p+3SKFFOVdan42uwgAAAAdleGFtcGxlAQ==";
const P521: &str = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAArAAAABNlY2RzYS1zaGEyLW5pc3RwNTIxAAAACG5pc3RwNTIxAAAAhQQBM+99aXqL4b9zWz4r/xqnOqrdiW9jBJBfTpt03oIK+aJ9KWokDpZ1OPbitqtFgbKXdtdypPfW7NLFDI1I0tJdrkYBW0tcQU+crsFcYQx7adwIYICot2MQYINbpeonDVWuMWZ0u9XVZSLzWSBe956xnACyPnF/kEsm/I/h/sFS/Yzgvk8AAAEIoSKzf6Eis38AAAATZWNkc2Etc2hhMi1uaXN0cDUyMQAAAAhuaXN0cDUyMQAAAIUEATPvfWl6i+G/c1s+K/8apzqq3YlvYwSQX06bdN6CCvmifSlqJA6WdTj24rarRYGyl3bXcqT31uzSxQyNSNLSXa5GAVtLXEFPnK7BXGEMe2ncCGCAqLdjEGCDW6XqJw1VrjFmdLvV1WUi81kgXveesZwAsj5xf5BLJvyP4f7BUv2M4L5PAAAAQRSdNL17rrsYEouftWUKpt1SFKi8kDq6IOy1r9SZb0m/kxVLSCf5pcvDD3OPXa/UkMeFa6zXx9GAFqYymqLyCs79AAAAB2V4YW1wbGUBAgME";
const RSA: &str = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAABFwAAAAdzc2gtcnNhAAAAAwEAAQAAAQEA3trO7e49JCLs5pPyKbzHE8QAGz6MrM3B8gNdgS8sh8aVMU0Q8KNXJ3tvc6ZLKbZxIXRGGSA6GxMtNQpb2lVOAJ80L3Pyv5zzq7AkKEy9MR1e4v0MJSJi3MmuFMESCHUl7SduoQ5j0STEjBPTHU7DRf1hg4PFq5tlZoTsu6Xsf+rk9eVDTJiDtNUxhVAHlBcYzcZI4mBsPQ04zJdc0WAhoBG7h1PgzhKX6EE4hFuM1maxb3PazD1v4IHjubK65niiE9lc79wUu0Pv+hOvWJpITKcUhLAu5jy2cj4kwxCC4J98KVU37ibvu5BqtvX2KP4YosZ2KRsj0puREn1r2su3OwAAA8B9eYWOfXmFjgAAAAdzc2gtcnNhAAABAQDe2s7t7j0kIuzmk/IpvMcTxAAbPoyszcHyA12BLyyHxpUxTRDwo1cne29zpksptnEhdEYZIDobEy01ClvaVU4AnzQvc/K/nPOrsCQoTL0xHV7i/QwlImLcya4UwRIIdSXtJ26hDmPRJMSME9MdTsNF/WGDg8Wrm2VmhOy7pex/6uT15UNMmIO01TGFUAeUFxjNxkjiYGw9DTjMl1zRYCGgEbuHU+DOEpfoQTiEW4zWZrFvc9rMPW/ggeO5srrmeKIT2Vzv3BS7Q+/6E69YmkhMpxSEsC7mPLZyPiTDEILgn3wpVTfuJu+7kGq29fYo/hiixnYpGyPSm5ESfWvay7c7AAAAAwEAAQAAAQAFrurWt9v9+e4KC1KCV1AfDuvkcKSXG5WLSHlaprX/WG8hl2eL236I1pBcZgHwtGMPiVmS9nbE41Oke057CPCOT4ETMg/KFy9CUkxPGCCTChQLZzdSEx3A/QZgJ8mqnDeKuWthgW5w56Z43rXkP3KiFvjPqSKiDQ/O8iuKCuHhzogzLCcVINWNf7OQM4u+rHGdmycBkyIpEy+aTiJRKYuUx2d+jUWuHch2xypbZCZ8pQ/O8jHoKFuiDekmehsCZnBwpY4jEb0elXuu1CBGasb1joF/VgMOoo0NOrLjqv5l8mCKI4lIz1tFuZB8tCTlP9g6xiDCdWTvynI7pondyCchAAAAgFfoZ715Y/3jYkXw1UjsJwviVu35ky5WUm66sMA5FXTK1JkUbj/fjQ6HlZObP3qWqbH7hm8x8btwZaGxIdWVAyuFOjrSJDh1NAKduivcyf8eO44E9cpY8GmFWm8vRHPxomo7ZD6uyhjLWiheZxViUWAlpXEiQld3EZzjvIGxwKpJAAAAgQD8wG5x8uKwZL1X5VEREA7XHR0ZuBu7+vID1nevR3K1L+ev2HvgccsAmpyEolxji28OJIV+W3zDN5h0IS5HYqSWH6wKiDiN7aRBXd+JCGoyQYg6e1VsZTfI8BowFDaZ/8ffH+92CSI3YRFiaPAiTgzGVP/LHQtotmUx3quU/gmiowAAAIEA4bgDmBKMq9iHmrzTkp1T4Pr8AdE0FaAmvnwjQjj42T36NuJLQK8TA/gGwzd9mOJEddnJxpXHjFQf/AucoPr6UBoP5SYz4xCe0wRjqvp0fvcwJtm+DnrZrezJKIAz9tNy2ryYmLCJJkRPuJ1e7rO4N6jOmjXnlzBSPtFDdtN2eokAAAAHZXhhbXBsZQECAwQ=";
const LOCKED: &str = "b3BlbnNzaC1rZXktdjEAAAAACmFlczI1Ni1jdHIAAAAGYmNyeXB0AAAAGAAAABCFbU+wrEslDU7zOSpZU0AdAAAAEAAAAAEAAAAzAAAAC3NzaC1lZDI1NTE5AAAAIGzvyurk4fenqPQL4PJw4++idC9Q5Kj+aUsq6bPOJRb1AAAAkEWLz/w24ocOcGFQDaVbChbYZTG7KgqMApsUaLs9NF8wEafvojloPAWiXgAfmyVSRnDRo45KFCUHVWBX6ApRS/TzHHAF+Y1aWB+rGgFbjx5MrDTN8M9cEso21Ens8fXIsi72ER8HKBcDGrml6AW1pz8Ca3f1nPZghs9jonARXMthjnu0n1L8uQKIeiF81lRGqA==";

fn refused(text: &str) -> Option<SshKeyError> {
    SshKey::line(text, &Nonces::new()).err()
}

fn file(line: &str) -> String {
    let lines: Vec<_> = line.as_bytes().chunks(70).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("{BEGIN}\n{}\n{END}\n", lines.join("\n"))
}

#[test]
fn keys_as_ssh_keygen_writes_them_sign() {
    let nonces = Nonces::new();
    for (line, ways) in [
        (ED25519, &["ssh-ed25519"][..]),
        (P256, &["ecdsa-sha2-nistp256"]),
        (P384, &["ecdsa-sha2-nistp384"]),
        (RSA, &["rsa-sha2-512", "rsa-sha2-256"]),
    ] {
        assert_eq!(*SshKey::line(&file(line), &nonces).unwrap(), line);
        let key = SshKey::from_line(line, &nonces).unwrap();
        assert_eq!(key.ways(), ways);
        for way in ways {
            let signature = key.sign(way, b"a session", &nonces).unwrap();
            assert_eq!(verify(way, key.public(), b"a session", &signature), Ok(()), "{way}");
            assert!(verify(way, key.public(), b"another", &signature).is_err(), "{way}");
        }
        assert!(key.sign("ssh-rsa", b"a session", &nonces).is_none(), "SHA-1 is not used");
    }
}

#[test]
fn what_cannot_be_used_is_named_with_what_to_do() {
    assert_eq!(refused(&file(LOCKED)), Some(SshKeyError::Encrypted));
    assert_eq!(refused(&file(P521)), Some(SshKeyError::Kind("ecdsa-sha2-nistp521".into())));
    assert_eq!(refused("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 me@example"), Some(SshKeyError::Public));
    let older = format!("-----BEGIN {0} PRIVATE KEY-----\nAAAA\n-----END {0} PRIVATE KEY-----", "RSA");
    assert_eq!(refused(&older), Some(SshKeyError::OlderForm));
    assert_eq!(refused("hunter2"), Some(SshKeyError::NotAKey));
    assert_eq!(refused(""), Some(SshKeyError::NotAKey));
}

#[test]
fn a_damaged_key_is_no_key() {
    for line in [ED25519, P256, RSA] {
        for cut in (0..line.len()).step_by(37) {
            assert!(SshKey::from_line(&line[..cut], &Nonces::new()).is_err(), "{cut}");
        }
    }
    // The seed no longer belongs to the public half.
    let mut bytes = STANDARD.decode(ED25519).unwrap();
    let at = bytes.windows(4).rposition(|window| window == [0, 0, 0, 64]).unwrap();
    bytes[at + 4] ^= 1;
    assert_eq!(SshKey::from_line(&STANDARD.encode(bytes), &Nonces::new()).err(), Some(SshKeyError::Damaged));
}

#[test]
fn remainders() {
    let check = |number: u64, prime: u64| {
        let found = below(&number.to_be_bytes(), &prime.to_be_bytes()).unwrap();
        let found = found.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        assert_eq!(found, number % (prime - 1), "{number} {prime}");
    };
    for number in [0, 1, 2, 255, 256, 65_537, u64::MAX] {
        for prime in [3, 5, 257, 65_537, 0xffff_ffff_ffff_ffc5] {
            check(number, prime);
        }
    }
    assert!(below(&[1], &[1]).is_none() && below(&[1], &[]).is_none());
}
