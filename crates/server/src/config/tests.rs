//! Sources, their order, and every mistake at once.

use super::*;
use std::fs;

fn flags(values: &[(Key, &str)]) -> Flags {
    let values = values.iter().map(|(key, text)| (*key, OsString::from(text))).collect();
    Flags { config: None, values }
}

fn env(values: &[(&str, &str)]) -> Environment {
    [("HOME", "/home/somebody")].iter().chain(values).copied().collect()
}

/// Loads `text` as the file given by `--config`.
fn load_file(text: &str) -> Result<Settings, String> {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let path = scratch.path().join("counterfoil.toml");
    fs::write(&path, text).expect("written");
    let given = Flags { config: Some(path), values: Vec::new() };
    let scratch_name = scratch.path().display().to_string();
    Settings::load(&given, &env(&[])).map_err(|e| e.to_string().replace(&scratch_name, "/etc"))
}

#[test]
fn the_defaults_are_those_that_are_written_down() {
    // Promise: a server without any setting runs with the documented values.
    let settings = Settings::load(&Flags::default(), &env(&[])).expect("defaults");
    assert_eq!(
        settings.data_dir().expect("known"),
        Path::new("/home/somebody/.local/share/counterfoil")
    );
    assert_eq!(settings.principal.as_str(), "local");
    assert_eq!(settings.store, StoreKind::Sqlite);
    assert_eq!(settings.lock_wait, Duration::from_secs(1));
    assert_eq!(settings.drain, Duration::from_secs(30));
    assert_eq!(settings.lifetimes, Lifetimes::default());
    assert_eq!(
        (settings.retention_job, settings.retention_interval),
        (true, Duration::from_secs(300))
    );
    assert_eq!(
        (settings.backend_id, settings.active_key, settings.filesystem_override),
        (None, None, None)
    );
    let homeless = Settings::load(&Flags::default(), &Environment::default()).expect("defaults");
    assert!(matches!(homeless.data_dir(), Err(DataDirError::Unknown)));
}

#[test]
fn stronger_sources_win() {
    // Promise: flags beat the environment, which beats the file, which beats the defaults.
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let dir = scratch.path().to_str().expect("UTF-8");
    fs::write(
        scratch.path().join("counterfoil.toml"),
        "principal = \"file\"\nbackend_id = \"file\"\nlock_wait = 0\n\
         filesystem_override = \"only-this-host-opens-this-ledger\"\n\
         [lifetimes]\nstate = 1.5\nauthority = \"2h\"\n[keys]\nactive = 3\n",
    )
    .expect("written");
    let env = env(&[
        ("COUNTERFOIL_DATA_DIR", dir),
        ("COUNTERFOIL_PRINCIPAL", "env"),
        ("COUNTERFOIL_BACKEND_ID", "env"),
        ("COUNTERFOIL_LIFETIMES_STATE", "20m"),
        ("COUNTERFOIL_STORE", "memory"),
    ]);
    let settings = Settings::load(&flags(&[(Key::BackendId, "flag")]), &env).expect("good");
    assert_eq!(settings.principal.as_str(), "env");
    assert_eq!(settings.backend_id.expect("given").as_str(), "flag");
    assert_eq!(settings.store, StoreKind::Memory);
    assert_eq!(settings.lock_wait, Duration::ZERO);
    assert_eq!(settings.lifetimes.state, Span::from_secs(1200));
    assert_eq!(settings.lifetimes.authority, Span::from_secs(7200));
    assert_eq!(settings.active_key, Some(KeyId(3)));
    assert_eq!(settings.filesystem_override, Some(OnlyThisHost));
    assert_eq!(settings.config_file, Some(scratch.path().join("counterfoil.toml")));
}

#[test]
fn a_file_is_found_by_flag_then_variable_then_data_directory() {
    // Promise: the file that was named is the file that is read, and it must be there.
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let write = |name: &str, text: &str| {
        let path = scratch.path().join(name);
        fs::write(&path, text).expect("written");
        path
    };
    write("counterfoil.toml", "principal = \"own\"");
    let by_variable = write("variable.toml", "principal = \"variable\"\ndata_dir = \"sub\"");
    let by_flag = write("flag.toml", "principal = \"flag\"");
    let dir = scratch.path().to_str().expect("UTF-8");
    let variable = by_variable.to_str().expect("UTF-8");
    let principal = |config: Option<&Path>, variables: &[(&str, &str)]| {
        let mut flags = flags(&[(Key::DataDir, dir)]);
        flags.config = config.map(Path::to_owned);
        let settings = Settings::load(&flags, &env(variables)).map_err(|e| e.to_string())?;
        Ok::<_, String>(settings.principal.to_string())
    };
    assert_eq!(principal(None, &[]), Ok("own".into()));
    assert_eq!(principal(None, &[(CONFIG_VARIABLE, variable)]), Ok("variable".into()));
    assert_eq!(principal(Some(&by_flag), &[(CONFIG_VARIABLE, variable)]), Ok("flag".into()));
    let missing = principal(Some(&scratch.path().join("no.toml")), &[]).expect_err("absent");
    assert!(missing.contains("no.toml: the file cannot be read"), "{missing}");
    let settings = Settings::load(&Flags::default(), &env(&[(CONFIG_VARIABLE, variable)]));
    let relative = settings.expect("good").data_dir().expect("given").to_owned();
    assert_eq!(relative, scratch.path().join("sub"), "counts from the file's directory");
    write("counterfoil.toml", "data_dir = \"/elsewhere\"");
    assert!(principal(None, &[]).expect_err("circular").contains("own file cannot say"));
}

#[test]
fn each_rule_names_value_and_remedy() {
    // Promise: a bad value is refused with its place, the rule and what to write instead.
    let cases: &[(&str, &str)] = &[
        ("lifetimes.state = nan", "1:19: lifetimes.state = nan: a time span must be finite"),
        ("lifetimes.state = inf", "must be finite"),
        ("lifetimes.state = -inf", "must be finite"),
        ("lifetimes.authority = 0", "its end would not be after its start"),
        ("lifetimes.authority = 0.0", "its end would not be after its start"),
        ("lifetimes.authority = \"0s\"", "its end would not be after its start"),
        ("lifetimes.retention = -1", "cannot be negative"),
        ("lifetimes.retention = \"-30d\"", "not a time span"),
        ("lifetimes.retention = 1e99", "at most 100 years"),
        ("lifetimes.retention = \"soon\"", "\"10m\", \"36h\", \"30d\""),
        ("lifetimes.retention = true", "not a time span"),
        ("lifetimes = 5", "write [lifetimes]"),
        ("retention.job = 1", "use true or false"),
        ("retention.job = \"no\"", "use true or false"),
        ("retention.interval = 0", "at least 1 s and at most 1 day"),
        ("retention.interval = \"25h\"", "at least 1 s and at most 1 day"),
        ("retention.interval = true", "not a time span"),
        ("retention = \"30d\"", "write [retention] on a line of its own, or lifetimes.retention"),
        ("lock_wait = \"2m\"", "at most one minute"),
        ("drain = \"2h\"", "at most one hour"),
        ("principal = \"\"", "principal is empty"),
        ("principal = \"a\\u0000b\"", "control character U+0000"),
        ("backend_id = 7", "a name is text, and this is an integer"),
        ("backend_id = [\"a\"]", "this is a list"),
        ("store = \"postgres\"", "use \"sqlite\""),
        ("store.x = 1", "store = (a table): there is no such store"),
        ("keys.active = 0", "not a key's number"),
        ("keys.active = 4294967296", "not a key's number"),
        ("keys.active = 0x1_0000_0000_0000_0000", "not a key's number"),
        ("filesystem_override = true", "only-this-host-opens-this-ledger"),
        ("http.allowed_hosts = [\"a\"]", "separated by commas"),
        ("http.allowed_hosts = \"http://a\"", "a host is a name or address"),
        ("http.allowed_origins = \"*\"", "an origin is http or https"),
        ("http.no_auth = true", "local-only"),
        ("http.max_connections = 0", "from 1 to 1000000"),
        ("http.max_in_flight = -1", "from 1 to 1000000"),
        ("http.max_rate = 1.5", "from 0 to 1000000"),
        ("http.max_sessions = \"many\"", "from 1 to 1000000"),
        ("http.session_idle = 0", "more than 0"),
        ("http.session_idle = \"2d\"", "at most one day"),
        ("tls.cert = \"c.pem\"", "this needs tls.key too"),
        ("tls.key = \"k.pem\"", "this needs tls.cert too"),
        ("tokens = 7", "a path is text"),
        ("data_dir = \"\"", "the path is empty"),
        ("lock_wiat = 1", "1:1: lock_wiat = 1: there is no such setting; use lock_wait"),
        (
            "log = \"debug\"",
            "log = \"debug\": what is logged is no setting of this file; use --log or COUNTERFOIL_LOG",
        ),
        ("[logging]\nlevel = 1", "use --log or COUNTERFOIL_LOG"),
        ("[colour]", "[colour]: there is no such setting; remove it"),
        ("[[store]]", "there is no such store"),
        ("store = \"sqlite\"\nstore = \"memory\"", "2:1: duplicate key"),
        ("lock_wait = ", "1:13: string values must be quoted"),
        ("\u{feff}lock_wait = \"x\"", "not a time span"),
    ];
    for (text, words) in cases {
        let error = load_file(text).expect_err(text);
        assert!(error.contains(words), "{text}\n{error}");
        assert_eq!(error.lines().count(), 2, "one mistake, one line\n{text}\n{error}");
    }
}

#[test]
fn a_server_over_http_is_set_up_in_one_table() {
    // Promise: lists have commas, files count from the configuration's own, zero lifts the rate.
    let settings = load_file(
        "tokens = \"t.json\"\n[http]\nallowed_hosts = \"a.example, [::1]:8443\"\n\
         allowed_origins = \"https://a.example\"\nmax_rate = 0\nsession_idle = \"1m\"\n\
         [tls]\ncert = \"c.pem\"\nkey = \"/k.pem\"\n",
    )
    .expect("good");
    let http = &settings.http;
    assert_eq!(
        http.allowed_hosts,
        ["a.example", "[::1]:8443"].map(|h| HostRule::parse(h).unwrap())
    );
    assert_eq!(http.allowed_origins, [OriginRule::parse("https://a.example").unwrap()]);
    assert_eq!((http.limits.max_rate, http.limits.session_idle), (0, Duration::from_secs(60)));
    assert_eq!(http.limits.max_in_flight, HttpLimits::default().max_in_flight);
    let file_of =
        |path: Option<&PathBuf>| path.and_then(|path| path.file_name()).unwrap().to_owned();
    assert_eq!(file_of(http.tls_cert.as_ref()), "c.pem");
    assert_eq!(http.tls_key.as_deref(), Some(Path::new("/k.pem")));
    let tokens = settings.tokens_file().expect("given");
    assert!(tokens.is_absolute() && tokens.ends_with("t.json"), "{}", tokens.display());
    let standard = load_file("").expect("good");
    assert!(standard.tokens_file().expect("known").ends_with("counterfoil/tokens.json"));
    assert_eq!((standard.http.no_auth, standard.http.limits), (None, HttpLimits::default()));
}

#[test]
fn every_mistake_of_every_source_is_named_at_once() {
    // Promise: one start tells everything that is wrong with the settings, and shows no secret.
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let path = scratch.path().join("counterfoil.toml");
    let text = "\
principal = \" \"
backend = \"orders\"
store = \"postgres://counterfoil:hunter2@db/ledger\"
lock_wait = \"soon\"
drain = [5]
api_key = \"hunter2\"

[lifetimes]
state = nan
authority = 0
retention = -3
forever = true

[keys]
active = \"6b6579206d6174657269616c20696e207468652077726f6e6720706c61636521\"
";
    fs::write(&path, text).expect("written");
    let mut given = flags(&[(Key::LockWait, "1 s"), (Key::Principal, "fine")]);
    given.config = Some(path);
    let env = env(&[
        ("COUNTERFOIL_DRAIN", "inf"),
        ("COUNTERFOIL_LOCKWAIT", "5"),
        ("COUNTERFOIL_SERVICE_HOST", "10.0.0.1"),
        ("COUNTERFOIL_PORT", "tcp://10.0.0.1:80"),
    ]);
    let error = Settings::load(&given, &env).expect_err("all wrong");
    assert_eq!(error.count(), 14);
    let shown = error.to_string().replace(&scratch.path().display().to_string(), "/etc");
    assert!(!shown.contains("hunter2") && !shown.contains("6b6579"), "{shown}");
    insta::assert_snapshot!(shown);
}

#[test]
fn after_broken_toml_nothing_else_of_the_file_is_told() {
    // Promise: what a parser guesses behind a mistake is not told as somebody's setting; other
    // sources are still checked.
    for text in [
        "principal = \"a\"\nstore = sqlite\"\n\n[state]\nx = 1\nlock_wait = \"soon\"\n",
        "principal = \"a\"\nlifetimes = { state = 1\n[lifetimes\nstate = 1\n",
        "principal = \"a\"\nstore sqlite\n[[keys]]\nactive = 0\n",
    ] {
        let error = load_file(text).expect_err(text);
        let told: Vec<&str> = error.lines().collect();
        assert_eq!(told.len(), 2, "{error}");
        assert!(told[1].starts_with("/etc/counterfoil.toml:"), "{error}");
        assert!(told[1].ends_with("; correct the TOML here"), "{error}");
    }
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let path = scratch.path().join("f");
    fs::write(&path, "a = \n").expect("written");
    let given = Flags { config: Some(path), ..flags(&[(Key::Store, "x")]) };
    assert_eq!(Settings::load(&given, &env(&[])).expect_err("both").count(), 2);
}

#[test]
fn a_file_in_the_data_directory_cannot_give_another() {
    // Promise: a data_dir that would be without effect is refused; one that agrees is not.
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let path = scratch.path().join(CONFIG_FILE);
    let dir = scratch.path().to_str().expect("UTF-8");
    let load = |text: &str, values: &[(Key, &str)], variables: &[(&str, &str)]| {
        fs::write(&path, text).expect("written");
        let given = Flags { config: Some(path.clone()), ..flags(values) };
        Settings::load(&given, &env(variables)).map_err(|error| error.to_string())
    };
    let elsewhere = "data_dir = \"/elsewhere\"";
    let by_flag = load(elsewhere, &[(Key::DataDir, dir)], &[]).expect_err("no effect");
    assert!(by_flag.contains("remove the line, or leave --data-dir out"), "{by_flag}");
    let by_variable = load(elsewhere, &[], &[("COUNTERFOIL_DATA_DIR", dir)]).expect_err("the same");
    assert!(by_variable.contains("leave COUNTERFOIL_DATA_DIR out"), "{by_variable}");
    load("data_dir = \".\"", &[(Key::DataDir, dir)], &[]).expect("agrees");
    load(elsewhere, &[(Key::DataDir, "/third")], &[]).expect("a stronger source elsewhere");
    let alone = load(elsewhere, &[], &[]).expect("has its effect");
    assert_eq!(alone.data_dir().expect("given"), Path::new("/elsewhere"));
}

#[test]
fn doubtful_lifetimes_are_told() {
    // Promise: clocks that end in an unusual order are allowed, and named.
    let cases: &[(&str, usize)] = &[
        ("", 0),
        ("lifetimes.state = \"1h\"", 0),
        ("lifetimes.state = \"61m\"", 1),
        ("lifetimes.authority = \"31d\"", 1),
        ("[lifetimes]\nstate = 3\nauthority = 2\nretention = 1", 2),
    ];
    for (text, count) in cases {
        assert_eq!(load_file(text).expect(text).doubts().len(), *count, "{text}");
    }
}

#[test]
fn every_setting_is_documented() {
    // Promise: the guide has each key with its default, its variable and its flag, and its example
    // can be used as it stands.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let guide = fs::read_to_string(path).expect("the guide");
    let defaults = Effective::load(&Flags::default(), &env(&[])).expect("defaults");
    let command = crate::cli::command();
    let serve = command.find_subcommand("serve").expect("the command");
    for value in defaults.values {
        let (key, name) = (value.key, value.key.name());
        let start = format!("| `{name}` |");
        let row = guide.lines().find(|line| line.starts_with(&start)).expect(name);
        let is_flag = serve.get_arguments().any(|arg| {
            arg.get_long().is_some_and(|long| key.flag().strip_prefix("--") == Some(long))
        });
        let flag = if is_flag { format!("`{}`", key.flag()) } else { "none".into() };
        let end = format!("| `{}` | {flag} |", key.env());
        assert!(row.ends_with(&end), "{name}: {end}");
        // Paths depend on the environment.
        if let Some(default) = value.value.filter(|_| !matches!(key, Key::DataDir | Key::Tokens)) {
            assert!(row.contains(&format!("| `{default}` |")), "{name}: {default}");
        }
        let leaf = name.rsplit('.').next().expect("a word");
        assert!(guide.contains(&format!("\n{leaf} = ")) || guide.contains(&format!("# {leaf} = ")));
    }
    let (_, example) = guide.split_once("```toml\n").expect("an example");
    let (example, _) = example.split_once("```").expect("its end");
    load_file(example).expect("it can be used");
    let whole = example.replace("# filesystem", "filesystem").replace("# no_auth", "no_auth");
    load_file(&whole).expect("with the lines in comments too");
}

#[test]
fn files_that_are_no_configuration_are_named() {
    // Promise: a file that cannot be read is an error with its path, never an empty configuration.
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let check = |path: &Path, words: &str| {
        let given = Flags { config: Some(path.to_owned()), values: Vec::new() };
        let error = Settings::load(&given, &env(&[])).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
        assert!(error.contains(&path.display().to_string()), "{error}");
    };
    check(scratch.path(), "the file cannot be read");
    let path = scratch.path().join("f");
    fs::write(&path, b"store = \"\xff\"").expect("written");
    check(&path, "byte 10 of the file is not UTF-8");
    fs::write(&path, " ".repeat(1024 * 1024 + 1)).expect("written");
    check(&path, "cannot be a configuration");
    fs::write(&path, "a.".repeat(10_000)).expect("written");
    check(&path, "correct the TOML here");
    fs::write(&path, format!("a = {}", "[".repeat(10_000))).expect("written");
    check(&path, "correct the TOML here");
}

#[test]
fn each_value_in_force_is_shown_with_its_source() {
    // Promise: whoever wonders why a setting has its value finds the line, variable or flag that
    // set it; the strongest source is named, and what is shown can be written into a file.
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let path = scratch.path().join("counterfoil.toml");
    let text =
        "# who calls\nprincipal = \"file\"\nlock_wait = 90\n\n[lifetimes]\nstate = \"90m\"\n";
    fs::write(&path, text).expect("written");
    let mut given = flags(&[(Key::Principal, "flag"), (Key::Store, "memory")]);
    given.config = Some(path.clone());
    let env = env(&[("COUNTERFOIL_DRAIN", "1.5"), ("COUNTERFOIL_LOCK_WAIT", "0")]);
    let error = Effective::load(&given, &env).expect_err("over the limit, though overridden");
    assert_eq!(error.count(), 1);
    fs::write(&path, text.replace("90\n", "60\n")).expect("written");
    let effective = Effective::load(&given, &env).expect("good");
    assert_eq!(effective.settings, Settings::load(&given, &env).expect("good"));
    let shown: Vec<String> = effective
        .values
        .iter()
        .map(|value| {
            let shown = value.value.as_deref().unwrap_or("-");
            format!("{} = {shown} ({})", value.key.name(), value.source)
        })
        .collect();
    let shown = shown.join("\n").replace(&scratch.path().display().to_string(), "/etc");
    insta::assert_snapshot!(shown);
}
