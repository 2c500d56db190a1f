//! What comes before the first statement: what is spoken, who the client is, and what it is told of the server.

use std::io::ErrorKind;
use std::sync::Arc;

use polychron::Protocol;
use polychron_base::clock::{Clock as _, Duration, SystemClock};
use polychron_sql::{Connection, DATABASE, LogIn, ROLE, SqlError, SqlState, Verifier};

use crate::Shared;
use crate::admission::Admission;
use crate::answers::Answers;
use crate::credentials::{Credentials, Password};
use crate::error::End;
use crate::failures::{self, Failures};
use crate::frames::{Cut, Incoming, LONGEST_AT_FIRST, cut};
use crate::messages::Content;
use crate::registry::{KEY, Place};
use crate::rules::Method;
use crate::scram::{BOUND_MECHANISM, Channel, Exchange, Failure, MECHANISM};
use crate::session::WORKER_WAIT;
use crate::socket::Socket;
use crate::tls::Secured;

const CANCEL: i32 = 80_877_102;
const TLS: i32 = 80_877_103;
const GSS: i32 = 80_877_104;
/// The first byte of TLS, which is none of a length.
const HANDSHAKE: u8 = 0x16;
/// The newest version that is spoken: 3.2.
const NEWEST: i32 = 3 << 16 | 2;

/// What a client says of itself.
#[derive(Debug)]
struct Startup {
    user: String,
    database: Option<String>,
    /// Settings of its session.
    settings: Vec<(String, String)>,
    /// Options of the protocol that are not known.
    unknown: Vec<String>,
    version: i32,
}

impl Startup {
    /// The database that it asks for: without a name, that which is called as its role.
    fn database(&self) -> &str {
        self.database.as_deref().unwrap_or(&self.user)
    }
}

/// Whether this is a name of the database for a client of this role.
pub(crate) fn is_database(name: &str, role: &str) -> bool {
    name == DATABASE || name == ROLE || name == role
}

/// A client that has not shown who it is.
pub(crate) struct Newcomer {
    pub(crate) socket: Arc<Socket>,
    pub(crate) place: Arc<Place>,
    pub(crate) incoming: Incoming,
    pub(crate) answers: Answers,
    clock: SystemClock,
    /// Once it has said something, it has to have shown by then who it is.
    deadline_ns: Option<u64>,
    /// What it has said of itself.
    startup: Option<Startup>,
    /// Until when it waits for what is next.
    until_ns: Option<u64>,
    /// How long it has waited because others have failed.
    waited: Duration,
    /// What it is told behind the wait.
    refused: Option<SqlError>,
}

/// What has become of the start of a connection.
pub(crate) enum Start<P: Protocol> {
    Session(Box<Connection<P>>),
    /// It was no session.
    Other,
    /// It goes on after this time, and needs no thread until then.
    Later(Duration),
}

/// What has become of a client that is to show who it is.
enum Shown {
    Role(LogIn),
    Later(Duration),
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Newcomer {
    pub(crate) fn new(socket: Arc<Socket>, place: Arc<Place>) -> Self {
        Self {
            socket,
            place,
            incoming: Incoming::default(),
            answers: Answers::default(),
            clock: SystemClock::new(),
            deadline_ns: None,
            startup: None,
            until_ns: None,
            waited: Duration::ZERO,
            refused: None,
        }
    }

    /// It has said something: from the first time on, it has this time to show who it is.
    pub(crate) fn begin(&mut self, timeout: Duration) {
        self.deadline_ns.get_or_insert_with(|| self.clock.now_ns().saturating_add(nanoseconds(timeout)));
    }

    /// It waits, and goes on by itself.
    pub(crate) fn is_delayed(&self) -> bool {
        self.until_ns.is_some()
    }

    /// How much is left of the time that it has.
    fn left(&self) -> Duration {
        let deadline = self.deadline_ns.unwrap_or(u64::MAX);
        Duration::from_nanos(deadline.saturating_sub(self.clock.now_ns()))
    }

    /// Has it wait for this time, as far as it has it.
    fn delay(&mut self, time: Duration) -> Duration {
        self.until_ns = Some(self.clock.now_ns().saturating_add(nanoseconds(time)));
        time.min(self.left())
    }

    /// Looks at a client that has waited, and may have gone or said more meanwhile. What is left of its wait is the answer.
    fn look(&mut self) -> Result<Duration, End> {
        let until = self.until_ns.unwrap_or(0);
        if self.left().is_zero() {
            return Err(End::Gone);
        }
        let left = Duration::from_nanos(until.saturating_sub(self.clock.now_ns()));
        if left.is_zero() {
            self.until_ns = None;
            return Ok(left);
        }
        if self.incoming.waiting().len() > LONGEST_AT_FIRST {
            return Err(End::violation("the client goes on before it was asked"));
        }
        // It can be read, or the look is a little early.
        self.socket.set_read_timeout(Some(Duration::from_millis(1)))?;
        match self.incoming.read(&self.socket) {
            Ok(true) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            _ => return Err(End::Gone),
        }
        Ok(left.min(self.left()))
    }

    /// Waits for a frame, within the time that is left for all of them.
    fn fill(&mut self, head: usize) -> Result<(), End> {
        loop {
            match cut(self.incoming.waiting(), head, LONGEST_AT_FIRST) {
                Cut::Whole(_) => return Ok(()),
                Cut::Wrong => return Err(End::violation("invalid message length")),
                Cut::More => self.read()?,
            }
        }
    }

    /// Reads more. What comes byte by byte has no more time than what comes at once.
    fn read(&mut self) -> Result<(), End> {
        let left = self.left();
        if left.is_zero() {
            return Err(End::Gone);
        }
        self.socket.set_read_timeout(Some(left))?;
        if self.incoming.read(&self.socket)? { Ok(()) } else { Err(End::Gone) }
    }

    /// Lets time pass in this thread, unless the client goes or is sent away.
    pub(crate) fn pause(&mut self) -> Result<(), End> {
        loop {
            let left = self.look()?;
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }

    /// Goes through the start of a connection, and on where it has waited.
    pub(crate) fn admit<P: Protocol>(&mut self, shared: &Shared<P>) -> Result<Start<P>, End> {
        if self.is_delayed() {
            let left = self.look()?;
            if !left.is_zero() {
                return Ok(Start::Later(left));
            }
            if let Some(refused) = self.refused.take() {
                return Err(End::Fatal(refused));
            }
        }
        let startup = match self.startup.take() {
            Some(startup) => startup,
            None => {
                let Some(startup) = self.startup(&shared.admission)? else { return Ok(Start::Other) };
                if startup.version > NEWEST || !startup.unknown.is_empty() {
                    let unknown: Vec<_> = startup.unknown.iter().map(String::as_str).collect();
                    self.answers.negotiate(startup.version.min(NEWEST), &unknown);
                }
                startup
            }
        };
        match self.authenticate(shared, &startup)? {
            Shown::Role(log_in) => {
                self.open(shared, &startup, &log_in).map(|connection| Start::Session(Box::new(connection)))
            }
            Shown::Later(time) => {
                self.startup = Some(startup);
                Ok(Start::Later(self.delay(time)))
            }
        }
    }

    /// Opens the session of a client that has shown who it is.
    fn open<P: Protocol>(
        &mut self,
        shared: &Shared<P>,
        startup: &Startup,
        log_in: &LogIn,
    ) -> Result<Connection<P>, End> {
        if !is_database(startup.database(), &startup.user) {
            let message = format!("database \"{}\" does not exist", startup.database());
            return Err(End::fatal(SqlState::UNDEFINED_DATABASE, message));
        }
        if !log_in.may_connect() {
            let message = format!("permission denied for database \"{DATABASE}\"");
            let error = SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message);
            return Err(End::Fatal(error.with_detail("User does not have CONNECT privilege.")));
        }
        let connection = shared.database.sql_as_within(&startup.user, WORKER_WAIT);
        let mut connection = connection.map_err(End::Fatal)?.into_inner();
        for (name, value) in &startup.settings {
            connection.set_parameter(name, value).map_err(End::Fatal)?;
        }
        connection.keep_as_initial();
        let mut key = [0; KEY];
        getrandom::fill(&mut key).map_err(|_| End::fatal(SqlState::INTERNAL_ERROR, "no random bytes"))?;
        let key = if startup.version >= NEWEST { &key[..] } else { &key[..4] };
        self.place.admit(&startup.user, log_in, key, connection.cancel_handle()).map_err(End::Fatal)?;
        crate::watching::introduce(&mut connection, &self.place, &self.socket);
        for (name, value) in connection.reported_parameters() {
            self.answers.parameter_status(name, &value);
        }
        self.answers.key(self.place.number, key);
        self.socket.set_read_timeout(None)?;
        self.socket.set_write_timeout(None)?;
        Ok(connection)
    }

    /// The client's first message that begins a session.
    fn startup(&mut self, admission: &Admission) -> Result<Option<Startup>, End> {
        let is_direct = self.begins_with_tls(admission)?;
        let (mut asked_tls, mut asked_gss) = (is_direct, is_direct);
        loop {
            self.fill(0)?;
            if is_direct && !self.socket.secured().is_some_and(Secured::is_named) {
                let message = "received direct SSL connection request without ALPN protocol negotiation extension";
                return Err(End::violation(message));
            }
            let frame = self.incoming.take(0, LONGEST_AT_FIRST);
            let mut content = Content(frame.content);
            match content.int4().map_err(End::Fatal)? {
                CANCEL => {
                    if let Ok(number) = content.int4() {
                        self.place.registry().cancel(number, content.0);
                    }
                    return Ok(None);
                }
                TLS if !std::mem::replace(&mut asked_tls, true) => asked_gss |= self.answer_tls(admission)?,
                GSS if !std::mem::replace(&mut asked_gss, true) => self.socket.write_all(b"N")?,
                version if version >> 16 == 3 => return startup(version, content).map(Some).map_err(End::Fatal),
                version => {
                    let (major, minor) = (version >> 16, version & 0xffff);
                    let message = format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.2");
                    return Err(End::fatal(SqlState::FEATURE_NOT_SUPPORTED, message));
                }
            }
        }
    }

    /// Begins TLS where the client does without asking.
    fn begins_with_tls(&mut self, admission: &Admission) -> Result<bool, End> {
        let Some(tls) = admission.tls(&self.socket) else { return Ok(false) };
        while self.incoming.waiting().is_empty() {
            self.read()?;
        }
        let is_direct = self.incoming.waiting()[0] == HANDSHAKE;
        if is_direct {
            let early = self.incoming.take_all();
            self.socket.secure(&tls.current(), &early)?;
        }
        Ok(is_direct)
    }

    /// Answers a request for TLS; whether it begins.
    fn answer_tls(&mut self, admission: &Admission) -> Result<bool, End> {
        let Some(tls) = admission.tls(&self.socket) else {
            self.socket.write_all(b"N")?;
            return Ok(false);
        };
        // It would count as encrypted, and anybody between may have put it there.
        if !self.incoming.waiting().is_empty() {
            return Err(End::violation("received unencrypted data after SSL request"));
        }
        self.socket.write_all(b"S")?;
        self.socket.secure(&tls.current(), &[])?;
        Ok(true)
    }

    /// Has the client show that it is a role, which may connect.
    fn authenticate<P: Protocol>(&mut self, shared: &Shared<P>, startup: &Startup) -> Result<Shown, End> {
        let user = &*startup.user;
        let method = shared.admission.method(&self.socket, startup.database(), user).map_err(End::Fatal)?;
        let known = shared.database.sql_log_in(user).map_err(End::Fatal)?;
        let is_own = self.socket.is_of_own_account();
        match (&shared.options.credentials, method) {
            (_, Method::Trust) => {}
            (_, Method::Peer | Method::PeerOrScram) if is_own => {}
            (Credentials::Password(password), Method::Scram | Method::PeerOrScram) => {
                if let Some(later) = self.check_password(password, known.as_ref(), user, &shared.failures)? {
                    return Ok(Shown::Later(later));
                }
            }
            (_, Method::Certificate) => self.check_certificate(user)?,
            _ => {
                let message = format!("Peer authentication failed for user \"{user}\"");
                return Err(End::fatal(SqlState::INVALID_AUTHORIZATION, message));
            }
        }
        let Some(known) = known else {
            return Err(End::fatal(SqlState::INVALID_AUTHORIZATION, format!("role \"{user}\" does not exist")));
        };
        if !known.may_log_in() {
            let message = format!("role \"{user}\" is not permitted to log in");
            return Err(End::fatal(SqlState::INVALID_AUTHORIZATION, message));
        }
        self.answers.authentication(0, &[]);
        Ok(Shown::Role(known))
    }

    /// Compares the role with the certificate that the client has shown.
    fn check_certificate(&self, user: &str) -> Result<(), End> {
        let refused = |message| Err(End::fatal(SqlState::INVALID_AUTHORIZATION, message));
        match self.socket.secured() {
            Some(secured) if secured.common_name().as_deref() == Some(user) => Ok(()),
            Some(secured) if secured.has_certificate() => {
                refused(format!("certificate authentication failed for user \"{user}\""))
            }
            _ => refused("connection requires a valid client certificate".to_owned()),
        }
    }

    /// Has the client show that it knows the password. The answer is a time that it waits before that.
    /// A role that is not there, or has no valid password, is asked as others are and costs as much.
    fn check_password(
        &mut self,
        first: &Password,
        known: Option<&LogIn>,
        user: &str,
        failures: &Failures,
    ) -> Result<Option<Duration>, End> {
        let address = self.socket.address();
        let left = failures::LONGEST.saturating_sub(self.waited);
        if !left.is_zero()
            && let Some(Err(wait)) = address.map(|address| failures.begin(address, user))
        {
            let wait = wait.min(left);
            self.waited += wait;
            return Ok(Some(wait));
        }
        let own = match known {
            Some(known) if user == ROLE && !known.has_password() => Some(first.verifier.clone()),
            known => known.and_then(LogIn::verifier).and_then(Verifier::parse),
        };
        let is_known = own.is_some();
        let verifier = own.unwrap_or_else(|| Verifier::of_nobody(&first.secret, user));
        let is_shown = self.exchange(&verifier)?;
        if is_shown && is_known {
            address.into_iter().for_each(|address| failures.forget(address, user));
            return Ok(None);
        }
        let message = format!("password authentication failed for user \"{user}\"");
        let refused = SqlError::new(SqlState::INVALID_PASSWORD, message);
        let Some(address) = address else {
            self.refused = Some(refused);
            return Ok(Some(failures::FIRST));
        };
        failures.note(address, user);
        Err(End::Fatal(refused))
    }

    /// Whether the client knows the password.
    fn exchange(&mut self, verifier: &Verifier) -> Result<bool, End> {
        let socket = self.socket.clone();
        let end_point = socket.secured().and_then(Secured::end_point);
        let bound = end_point.map(|_| BOUND_MECHANISM);
        let offered: String = bound.into_iter().chain([MECHANISM]).map(|name| format!("{name}\0")).collect();
        self.answers.authentication(10, format!("{offered}\0").as_bytes());
        self.answers.write(&self.socket)?;
        let first = self.response()?;
        let mut content = Content(&first);
        let channel = match (content.text().map_err(End::Fatal)?, end_point) {
            (MECHANISM, None) => Channel::None,
            (MECHANISM, Some(_)) => Channel::Offered,
            (BOUND_MECHANISM, Some(hash)) => Channel::Bound(hash),
            _ => return Err(End::violation("client selected an invalid SASL authentication mechanism")),
        };
        let first = content.value().and_then(|first| content.end().map(|()| first)).map_err(End::Fatal)?;
        let first = text_of(first.unwrap_or_default())?;
        let (exchange, answer) = Exchange::begin(verifier, channel, first).map_err(failed)?;
        self.answers.authentication(11, answer.as_bytes());
        self.answers.write(&self.socket)?;
        let last = self.response()?;
        match exchange.finish(text_of(&last)?) {
            Ok(answer) => self.answers.authentication(12, answer.as_bytes()),
            Err(Failure::Wrong) => return Ok(false),
            Err(other) => return Err(failed(other)),
        }
        Ok(true)
    }

    /// What the client answers to a request for authentication.
    fn response(&mut self) -> Result<Vec<u8>, End> {
        self.fill(1)?;
        let frame = self.incoming.take(1, LONGEST_AT_FIRST);
        if frame.kind != b'p' {
            return Err(End::violation(format!("expected SASL response, got message type {}", frame.kind)));
        }
        Ok(frame.content.to_vec())
    }
}

fn failed(failure: Failure) -> End {
    let refused = |message| SqlError::new(SqlState::INVALID_AUTHORIZATION, message);
    match failure {
        Failure::Malformed(what) => End::violation(format!("malformed SCRAM message: {what}")),
        Failure::Wrong => End::violation("malformed SCRAM message: no proof"),
        Failure::Elsewhere => End::Fatal(refused("SCRAM channel binding check failed")),
        Failure::Downgraded => {
            End::Fatal(refused("SCRAM channel binding negotiation error").with_detail(
                "The client supports channel binding, and takes it that the server does not, which it does.",
            ))
        }
    }
}

fn text_of(bytes: &[u8]) -> Result<&str, End> {
    str::from_utf8(bytes).map_err(|_| End::violation("malformed SCRAM message"))
}

/// What the first message says.
fn startup(version: i32, mut content: Content<'_>) -> Result<Startup, SqlError> {
    let mut own = Startup { user: String::new(), database: None, settings: Vec::new(), unknown: Vec::new(), version };
    loop {
        let name = content.text()?;
        if name.is_empty() {
            content.end()?;
            break;
        }
        let value = content.text()?;
        match name {
            "user" => value.clone_into(&mut own.user),
            "database" => own.database = Some(value.to_owned()).filter(|name| !name.is_empty()),
            "replication" if ["false", "off", "no", "0"].contains(&value) => {}
            "replication" => {
                let message = "connections for replication are not supported";
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            "options" => options(value, &mut own.settings)?,
            other if other.starts_with("_pq_.") => own.unknown.push(other.to_owned()),
            other => own.settings.push((other.to_owned(), value.to_owned())),
        }
    }
    if own.user.is_empty() {
        let message = "no PostgreSQL user name specified in startup packet";
        return Err(SqlError::new(SqlState::INVALID_AUTHORIZATION, message));
    }
    Ok(own)
}

/// Settings as arguments: `-c name=value` and `--name=value`. A backslash stands in front of a blank that belongs to a value.
fn options(text: &str, settings: &mut Vec<(String, String)>) -> Result<(), SqlError> {
    let mut words = vec![String::new()];
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, words.last_mut()) {
            ('\\', Some(word)) => word.extend(letters.next()),
            (blank, _) if blank.is_ascii_whitespace() => words.push(String::new()),
            (other, Some(word)) => word.push(other),
            _ => {}
        }
    }
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let setting = match word.strip_prefix("--") {
            Some(setting) => Some(setting.to_owned()),
            None if word == "-c" => words.next(),
            None => word.strip_prefix("-c").map(str::to_owned),
        };
        let pair = setting.as_deref().and_then(|setting| setting.split_once('='));
        let Some((name, value)) = pair else {
            let message = format!("the option \"{word}\" of a connection is not supported");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        };
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_settings() {
        let mut settings = Vec::new();
        options(r"-c statement_timeout=5s  --application-name=a\ b -cx=y", &mut settings).unwrap();
        let settings: Vec<_> = settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(settings, [("statement_timeout", "5s"), ("application_name", "a b"), ("x", "y")]);
        assert!(options("-d 3", &mut Vec::new()).is_err());
    }

    #[test]
    fn a_startup_that_is_cut_off_is_refused() {
        let bytes = b"user\0postgres\0database\0polychron\0_pq_.new\x001\0application_name\0a\0\0";
        let own = startup(NEWEST, Content(bytes)).unwrap();
        assert_eq!((own.user.as_str(), own.database.as_deref()), ("postgres", Some("polychron")));
        assert_eq!(
            (own.unknown, own.settings),
            (vec!["_pq_.new".into()], vec![("application_name".into(), "a".into())])
        );
        for end in 0..bytes.len() {
            assert!(startup(NEWEST, Content(&bytes[..end])).is_err(), "{end}");
        }
        assert!(startup(NEWEST, Content(b"\0")).is_err());
    }
}
