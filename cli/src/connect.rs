//! Where the server is, and with which password.
//!
//! The password may be part of the URL, stand in a file, or in `RESIL_PASSWORD`: what other users of the machine can see in the list of
//! processes should hold none. It is put into the URL here and shown nowhere.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use resil::{Client, ConnectSettings};

use crate::failure::{Failure, SERVER};
use crate::spans;

const DEFAULT_URL: &str = "redis://127.0.0.1:6379";

#[derive(Args)]
pub struct ConnectArgs {
    /// The server: redis://, rediss://, redis+cluster://, redis+sentinel:// or unix://; else RESIL_URL, else redis://127.0.0.1:6379
    #[arg(long, global = true)]
    url: Option<String>,
    /// The user, if the URL has none; else RESIL_USER. The password is taken from RESIL_PASSWORD
    #[arg(long, global = true)]
    user: Option<String>,
    /// A file whose first line is the password; else RESIL_PASSWORD_FILE
    #[arg(long, global = true, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// How long the server may take for one command
    #[arg(long, global = true, value_name = "DURATION", value_parser = spans::read, default_value = "3s")]
    timeout: Duration,
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl ConnectArgs {
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Connects, or says why that cannot be.
    pub async fn client(&self) -> Result<Client, Failure> {
        Ok(self.settings()?.require_server().connect().await?)
    }

    /// Connects as soon as it can be. Only what no later attempt could mend is an error.
    pub async fn patient_client(&self) -> Result<Client, Failure> {
        Ok(self.settings()?.connect().await?)
    }

    fn settings(&self) -> Result<ConnectSettings, Failure> {
        let url = self.url.clone().or_else(|| env("RESIL_URL")).unwrap_or_else(|| DEFAULT_URL.to_owned());
        if url.starts_with("memory") {
            let text = "memory:// is in one process alone: there is no fleet to look at; name a server, such as redis://127.0.0.1:6379";
            return Err(Failure::Usage(text.to_owned()));
        }
        if url.split_once("://").is_some_and(|(scheme, _)| scheme.ends_with("+quorum")) {
            let text = "redis+quorum:// is several servers that know nothing of each other: name one of them, such as redis://127.0.0.1:6379";
            return Err(Failure::Usage(text.to_owned()));
        }
        let _ = SERVER.set(shown(&url));
        let url = with_login(&url, self.user.clone().or_else(|| env("RESIL_USER")), self.password()?);
        Ok(ConnectSettings::new(url).name(&format!("resil-cli-{}", std::process::id())).command_timeout(self.timeout))
    }

    fn password(&self) -> Result<Option<String>, Failure> {
        let Some(file) = self.password_file.clone().or_else(|| env("RESIL_PASSWORD_FILE").map(PathBuf::from)) else {
            return Ok(env("RESIL_PASSWORD"));
        };
        let text = std::fs::read_to_string(&file)
            .map_err(|error| Failure::Usage(format!("the password file {}: {error}", file.display())))?;
        match text.lines().next().unwrap_or_default() {
            "" => Err(Failure::Usage(format!("the password file {} has an empty first line", file.display()))),
            password => Ok(Some(password.to_owned())),
        }
    }
}

/// Hosts and ports, as far as they can be shown without a part of the password, which may hold characters that belong to URLs.
fn shown(url: &str) -> String {
    let hidden = || "the server of the URL".to_owned();
    let Some((scheme, rest)) = url.split_once("://") else { return hidden() };
    let (place, query) = rest.split_once(['?', '#']).unwrap_or((rest, ""));
    if query.contains('@') {
        return hidden();
    }
    if scheme.ends_with("unix") {
        return place.to_owned();
    }
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    place.trim_end_matches('/').to_owned()
}

/// The URL with user and password in it, where it has none itself.
fn with_login(url: &str, user: Option<String>, password: Option<String>) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    if user.is_none() && password.is_none() {
        return url.to_owned();
    }
    let (user, password) = (percent(&user.unwrap_or_default()), password.map(|password| percent(&password)));
    if scheme.ends_with("unix") {
        let fields = [("user", Some(user).filter(|user| !user.is_empty())), ("pass", password)];
        let mut url = url.to_owned();
        for (name, value) in fields {
            let is_there = rest.contains(&format!("?{name}=")) || rest.contains(&format!("&{name}="));
            if let (false, Some(value)) = (is_there, value) {
                let separator = if url.contains('?') { '&' } else { '?' };
                url.push_str(&format!("{separator}{name}={value}"));
            }
        }
        return url;
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (login, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (own_user, own_password) =
        login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
    let user = if own_user.is_empty() { user.as_str() } else { own_user };
    let password = own_password.map(str::to_owned).or(password).unwrap_or_default();
    format!("{scheme}://{user}:{password}@{host}{path}")
}

fn percent(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_shown_without_a_part_of_the_password() {
        for (url, wanted) in [
            ("redis://127.0.0.1:6379", "127.0.0.1:6379"),
            ("redis://ann:hunter2@h:1/2", "h:1/2"),
            ("redis://:hun/ter2@h:1", "h:1"),
            ("redis://:hun@ter2@h:1", "h:1"),
            ("redis://:hun?ter2@h:1", "the server of the URL"),
            ("redis://:hun#ter2@h:1", "the server of the URL"),
            ("redis+cluster://ann:hunter2@a:1,b:2", "a:1,b:2"),
            ("redis+sentinel://:hunter2@a:1,b:2/main?sentinel_pass=hunter2", "a:1,b:2/main"),
            ("unix:///run/s?user=ann&pass=hunter2", "/run/s"),
            ("unix:///run/s?pass=hunter2@x", "the server of the URL"),
        ] {
            assert_eq!(shown(url), wanted, "{url}");
        }
    }

    #[test]
    fn a_login_goes_where_the_url_has_none() {
        let with = |url: &str, user: &str, password: &str| {
            let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            with_login(url, some(user), some(password))
        };
        assert_eq!(with("redis://h:1/2", "", ""), "redis://h:1/2");
        assert_eq!(with("redis://h:1/2", "", "p@/ß"), "redis://:p%40%2F%C3%9F@h:1/2");
        assert_eq!(with("redis://ann@h", "bob", "x"), "redis://ann:x@h");
        assert_eq!(with("redis://ann:own@h", "bob", "x"), "redis://ann:own@h");
        assert_eq!(with("redis+cluster://a:1,b:2", "ann", "x"), "redis+cluster://ann:x@a:1,b:2");
        assert_eq!(with("unix:///s?db=1", "ann", "x"), "unix:///s?db=1&user=ann&pass=x");
    }
}
