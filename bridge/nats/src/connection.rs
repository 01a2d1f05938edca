//! The connection to NATS: its servers, its credentials, and how it reconnects.
//!
//! Secrets come from files and the environment only, and no error shows one.

use crate::channel::Failure;
use crate::figures::ConnectionFigures;
use crate::group::Group;
use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, ServerAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The servers and the credentials of a connection.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The servers, by their URLs; of a cluster, one is enough.
    pub servers: Vec<ServerAddr>,
    /// A file of credentials: a JWT and its key.
    pub creds: Option<PathBuf>,
    /// A file that holds the seed of an NKey.
    pub nkey: Option<PathBuf>,
    /// Certificates to trust besides those of the system.
    pub tls_ca: Option<PathBuf>,
    /// The certificate of this client and its key.
    pub tls_cert: Option<(PathBuf, PathBuf)>,
    /// Whether to refuse a connection without TLS.
    pub tls: bool,
    /// Where inboxes begin, if not at `_INBOX`.
    pub inbox_prefix: Option<String>,
    /// A user and a password.
    pub user: Option<Secret<(String, String)>>,
    /// A token.
    pub token: Option<Secret<String>>,
}

/// A connection, and this program's subscription in a queue group by it.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The client, which connects again by itself.
    pub client: Client,
    pub(crate) group: Group,
}

impl Connection {
    /// Whether there is a server at the other end.
    pub fn is_up(&self) -> bool {
        is_up(&self.client)
    }
}

/// The same of a client.
pub(crate) fn is_up(client: &Client) -> bool {
    client.connection_state() == State::Connected
}

/// A value that `Debug` does not show.
#[derive(Clone)]
pub struct Secret<T>(pub T);

impl<T> std::fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("...")
    }
}

/// The servers that `text` names, separated by commas.
///
/// # Errors
///
/// The reason, without the text: it may hold a password.
pub fn servers(text: &str) -> Result<Vec<ServerAddr>, String> {
    let wrong = "a server is named like nats://host:4222, several with commas in between";
    text.split(',').map(|each| each.trim().parse().map_err(|_| wrong.to_owned())).collect()
}

/// Connects, and keeps trying where no server is there yet.
///
/// # Errors
///
/// A file that cannot be read, or a server that refuses.
pub async fn connect(access: Access, figures: Arc<ConnectionFigures>) -> Result<Connection, Failure> {
    let names: Vec<String> =
        access.servers.iter().map(|server| format!("{}:{}", server.host(), server.port())).collect();
    let group = Group::default();
    let lapsing = group.clone();
    let mut options = ConnectOptions::new()
        .name("pipework-nats")
        .require_tls(access.tls)
        .retry_on_initial_connect()
        .ping_interval(Duration::from_secs(5))
        // async-nats asks this before each try, so always before it renews subscriptions.
        .reconnect_delay_callback(move |attempts| {
            lapsing.lapse();
            backoff(Duration::from_millis(10), Duration::from_secs(5), attempts.saturating_sub(1))
        })
        .event_callback(move |event| {
            count(&figures, &event);
            std::future::ready(())
        });
    if let Some(creds) = &access.creds {
        let opened = options.credentials_file(creds).await;
        // The error may quote the file.
        options = opened
            .map_err(|error| Failure(format!("{}: no credentials: {}", creds.display(), error.kind())))?;
    }
    if let Some(nkey) = &access.nkey {
        let seed = std::fs::read_to_string(nkey);
        let seed = seed.map_err(|error| Failure(format!("{}: {}", nkey.display(), error.kind())))?;
        options = options.nkey(seed.trim().to_owned());
    }
    if let Some(ca) = access.tls_ca {
        options = options.add_root_certificates(ca);
    }
    if let Some((cert, key)) = access.tls_cert {
        options = options.add_client_certificate(cert, key);
    }
    if let Some(prefix) = access.inbox_prefix {
        options = options.custom_inbox_prefix(prefix);
    }
    if let Some(Secret((user, password))) = access.user {
        options = options.user_and_password(user, password);
    }
    if let Some(Secret(token)) = access.token {
        options = options.token(token);
    }
    let connected = options.connect(access.servers).await;
    let client = connected.map_err(|error| Failure(format!("{}: {}", names.join(", "), error.kind())))?;
    Ok(Connection { client, group })
}

/// How long to wait before another try: at first `first`, twice as long after each further failure,
/// at most `most`; and half of that at least, so that no two programs keep step.
pub(crate) fn backoff(first: Duration, most: Duration, failures: usize) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let doublings = u32::try_from(failures).unwrap_or(u32::MAX).min(16);
    // Each state has keys of its own.
    let random = RandomState::new().hash_one(0) >> 11;
    (first * (1 << doublings)).min(most).mul_f64(0.5 + random as f64 / (1u64 << 54) as f64)
}

fn count(figures: &ConnectionFigures, event: &Event) {
    let counter = match event {
        Event::Connected => &figures.connects,
        Event::Disconnected => &figures.disconnects,
        Event::SlowConsumer(_) => &figures.slow,
        Event::ServerError(_) | Event::ClientError(_) => &figures.errors,
        _ => return,
    };
    ConnectionFigures::count(counter);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_separated_by_commas() {
        let known = servers("nats://a:1, tls://b").unwrap();
        assert_eq!(
            known.iter().map(|each| (each.host(), each.port())).collect::<Vec<_>>(),
            [("a", 1), ("b", 4222)]
        );
        let wrong = servers("nats://user:secret@[").unwrap_err();
        assert!(!wrong.contains("secret"), "{wrong}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let access = Access {
            token: Some(Secret("hidden-token".into())),
            user: Some(Secret(("user".into(), "hidden-password".into()))),
            ..Access::default()
        };
        assert!(!format!("{access:?}").contains("hidden"));
    }

    #[test]
    fn backoff_doubles_up_to_its_limit_with_jitter() {
        let after =
            |failures| backoff(Duration::from_millis(10), Duration::from_secs(1), failures).as_secs_f64();
        let all: Vec<f64> = (0..1000).map(|_| after(0) / 0.01).collect();
        assert!(all.iter().all(|each| (0.5..=1.0).contains(each)));
        let (low, high) = (all.iter().filter(|each| **each < 0.6), all.iter().filter(|each| **each > 0.9));
        assert!(low.count() > 100 && high.count() > 100);
        assert!((0.04..=0.08).contains(&after(3)));
        assert!((0.5..=1.0).contains(&after(usize::MAX)));
    }
}
