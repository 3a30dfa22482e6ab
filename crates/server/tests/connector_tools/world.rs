//! A data directory with a configuration of connectors to one desk.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::command::Bench;

pub(crate) struct World {
    pub(crate) bench: Bench,
}

impl World {
    /// With connectors to the desk at that address.
    pub(crate) fn new(desk: SocketAddr, connectors: &str) -> Self {
        let bench = Bench::new();
        bench.make_data_dir();
        let world = Self { bench };
        world.configure(desk, connectors);
        world
    }

    /// Changes the configuration, for servers that start from now on.
    pub(crate) fn configure(&self, desk: SocketAddr, connectors: &str) {
        let text = connectors.replace("DESK", &desk.to_string());
        fs::write(self.bench.data("counterfoil.toml"), text).expect("written");
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.bench.data("")
    }
}

/// The ticket tool.
pub(crate) const TICKETS: &str = r#"
[connector.desk]
tool = "submit_support_ticket"
description = "Opens a ticket at the help desk."
url = "http://DESK/tickets"
contract = "key"
allow_networks = ["127.0.0.1/32"]
[connector.desk.idempotency]
header = "Idempotency-Key"
[connector.desk.json]
subject = "{{ args.subject }}"
description = "{{ args.description }}"
[connector.desk.success]
status = [201]
external_id = "/id"
[[connector.desk.answer]]
status = [422]
at = "/error"
type = "string"
means = "refused"
[connector.desk.delivery]
key_lifetime = "24h"
max_attempts = 2
backoff_base = "10ms"
backoff_cap = "20ms"
[connector.desk.limits]
breaker_failures = 0
"#;

/// A tool with a declared result, which it waits for.
pub(crate) const BUGS: &str = r#"
[connector.bugs]
tool = "file_bug"
description = "Files a bug."
url = "http://DESK/bugs"
contract = "key"
wait = "1m"
allow_networks = ["127.0.0.1/32"]
[connector.bugs.arguments]
type = "object"
required = ["title"]
[connector.bugs.arguments.properties]
title = { type = "string", minLength = 1 }
maxDepth = { type = "integer" }
[connector.bugs.output]
type = "object"
required = ["number"]
additionalProperties = false
[connector.bugs.output.properties]
number = { type = "integer" }
[connector.bugs.idempotency]
header = "Idempotency-Key"
[connector.bugs.json]
title = "{{ args.title }}"
depth = "{{ args.maxDepth }}"
[connector.bugs.success]
status = [201]
external_id = "/id"
[connector.bugs.result]
text = "Filed {{ external_id }}."
[connector.bugs.result.structured]
number = "{{ reply.number }}"
[connector.bugs.delivery]
key_lifetime = "24h"
backoff_base = "10ms"
backoff_cap = "20ms"
[connector.bugs.limits]
breaker_failures = 0
"#;

/// The same, and it never waits.
pub(crate) fn bugs_at_once() -> String {
    BUGS.replace("wait = \"1m\"", "wait = \"0s\"")
}

/// A payment, which nothing makes safe to repeat, and a notice that may double.
pub(crate) const UNSAFE: &str = r#"
[connector.pay]
description = "Pays."
url = "http://DESK/pay"
contract = "never"
wait = "1m"
allow_networks = ["127.0.0.1/32"]
[connector.pay.arguments]
type = "object"
[connector.pay.success]
status = [201]
[connector.ring]
description = "Rings."
url = "http://DESK/ring"
contract = "at_least_once"
wait = "1m"
allow_networks = ["127.0.0.1/32"]
[connector.ring.arguments]
type = "object"
[connector.ring.success]
status = [201]
[connector.ring.delivery]
backoff_base = "10ms"
backoff_cap = "20ms"
"#;
