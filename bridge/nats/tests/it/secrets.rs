//! The identity of a bridge: credentials and NKeys, which no log, error or command line shows.

use crate::harness::{Folder, Nats, Process, SOON, has_nats, wait_until};
use nkeys::KeyPair;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Base64 for URLs, without padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let digits = bytes.chunks(3).flat_map(|chunk| {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        (0..=chunk.len()).map(move |nth| DIGITS[(bits >> (18 - 6 * nth)) as usize & 63] as char)
    });
    digits.collect()
}

/// A token that says `claims` of `subject`, signed by `issuer`.
fn token(issuer: &KeyPair, subject: &KeyPair, kind: &str, claims: &str) -> String {
    let claims = format!(
        r#"{{"jti":"{0}","iat":1700000000,"iss":"{1}","sub":"{0}","name":"test","nats":{{{claims}"type":"{kind}","version":2}}}}"#,
        subject.public_key(),
        issuer.public_key(),
    );
    let head = base64(br#"{"typ":"JWT","alg":"ed25519-nkey"}"#);
    let signed = format!("{head}.{}", base64(claims.as_bytes()));
    let signature = issuer.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", base64(&signature))
}

/// A server that knows one user only, by a token of an account.
fn with_operator(folder: &Path) -> (Nats, String) {
    let (operator, account) = (KeyPair::new_operator(), KeyPair::new_account());
    let user = KeyPair::new_user();
    let any = r#""subs":-1,"data":-1,"payload":-1,"#;
    let limits =
        format!(r#""limits":{{{any}"imports":-1,"exports":-1,"wildcards":true,"conn":-1,"leaf":-1}},"#);
    let config = format!(
        "operator: {}\nresolver: MEMORY\nresolver_preload: {{ {}: {} }}\n",
        token(&operator, &operator, "operator", ""),
        account.public_key(),
        token(&operator, &account, "account", &limits),
    );
    let path = folder.join("operator.conf");
    fs::write(&path, config).unwrap();
    let user_token = token(&account, &user, "user", &format!(r#""pub":{{}},"sub":{{}},{any}"#));
    let creds = format!(
        "-----BEGIN NATS USER JWT-----\n{user_token}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{}\n------END USER NKEY SEED------\n",
        user.seed().unwrap()
    );
    fs::write(folder.join("user.creds"), creds).unwrap();
    (Nats::start(&["-c", path.to_str().unwrap()]), user.seed().unwrap())
}

/// A server that knows one user only, by its key.
fn with_key(folder: &Path) -> (Nats, String) {
    let user = KeyPair::new_user();
    let path = folder.join("key.conf");
    fs::write(&path, format!("authorization {{ users = [ {{ nkey: {} }} ] }}\n", user.public_key())).unwrap();
    fs::write(folder.join("user.nk"), format!("{}\n", user.seed().unwrap())).unwrap();
    (Nats::start(&["-c", path.to_str().unwrap()]), user.seed().unwrap())
}

fn bridge(nats: &Nats, folder: &Path, command: &str, secret: [&str; 2]) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_pipework-nats"));
    program.args([command, "--subject", "s"]).args(secret).current_dir(folder);
    program.env("NATS_URL", nats.url()).stdin(Stdio::null()).stdout(Stdio::null());
    program
}

#[test]
fn bridges_authenticate_and_show_no_secret() {
    if !has_nats() {
        return;
    }
    type Make = fn(&Path) -> (Nats, String);
    let cases: [(Make, [&str; 2]); 2] =
        [(with_operator, ["--creds", "user.creds"]), (with_key, ["--nkey", "user.nk"])];
    for (make, secret) in cases {
        let folder = Folder::new();
        let (nats, seed) = make(&folder.0);
        for name in ["inbox", "outbox"] {
            pipework::atomic::create_fifo(folder.0.join(name)).unwrap();
        }
        let mut reader = pipework::atomic::Options::new().read_fifo(folder.0.join("outbox")).unwrap();
        let said = fs::File::create(folder.0.join("said")).unwrap();
        let start = |command: &str, rest: &[&str]| {
            let mut program = bridge(&nats, &folder.0, command, secret);
            Process::start(program.args(rest).stderr(said.try_clone().unwrap()))
        };
        let subscribe = start("subscribe", &["--to", "outbox"]);
        let publish = start("publish", &["inbox", "--forever"]);
        let mut writer = pipework::atomic::Options::new().write_fifo(folder.0.join("inbox"), SOON).unwrap();
        // Until the subscription exists, messages are lost.
        wait_until("a message arrives", || {
            writer.send("hello", SOON).unwrap();
            reader.recv(Duration::from_millis(100)).is_ok_and(|message| *message == *b"hello")
        });
        let hidden = &seed[2..];
        for process in [&publish, &subscribe] {
            let shown = fs::read_to_string(format!("/proc/{}/cmdline", process.0.id())).unwrap();
            assert!(!shown.contains(hidden));
        }
        assert!(publish.stop().success());
        assert!(subscribe.stop().success());

        // Unknown users, and malformed files of secrets.
        let stranger = KeyPair::new_user().seed().unwrap();
        let garbled = format!("-----BEGIN USER NKEY SEED-----\n{stranger}\nand more\n");
        fs::write(folder.0.join("stranger"), &stranger).unwrap();
        fs::write(folder.0.join("garbled"), &garbled).unwrap();
        for secret in
            [["--nkey", "stranger"], ["--nkey", "garbled"], ["--creds", "garbled"], ["--creds", "none"]]
        {
            let mut program = bridge(&nats, &folder.0, "publish", secret);
            program.arg("inbox").stderr(said.try_clone().unwrap());
            let mut refused = Process::start(&mut program);
            // A bridge that a server refuses tries again and again, and its metrics show it.
            std::thread::sleep(Duration::from_millis(500));
            if secret == ["--creds", "none"] {
                assert_eq!(refused.0.wait().unwrap().code(), Some(1));
            }
        }
        let said = fs::read_to_string(folder.0.join("said")).unwrap();
        for secret in [hidden, &stranger[2..], "and more"] {
            assert!(!said.contains(secret), "{said}");
        }
    }
}
