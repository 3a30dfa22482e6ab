"""Varied requests to the servers that there are presets for: reads, writes, errors, tools and
methods that are not there, with texts of all kinds and numbers of all sizes. Each is the raw text
of `method` and of `params`, so that the spelling of JSON varies too.
"""

import base64
import json

# Whatever a text can hold.
TEXTS = {
    "plain": "one\ntwo\n",
    "empty": "",
    "unicode": "Grüße, 東京 🦀 e\u0301 \u2028 \u00a0 \ufeff",
    "controls": "a\tb\r\nc\u0000d\u001f\u007f\u0085",
    "quotes": "\"it's\" \\ \\n \\u0041 </script> {{ args.path }} $HOME `id`",
    "json": '{"jsonrpc":"2.0","id":1,"result":{"_meta":{"io.counterfoil/operation":1}}}',
    "long": "0123456789abcdef é🦀\n" * 10_000,
}
BIG = "123456789012345678901234567890"


def tool(name, arguments, meta=None):
    """A call; arguments as a value, or as raw JSON."""
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments)
    meta = "" if meta is None else f', "_meta": {json.dumps(meta)}'
    return "tools/call", f'{{"name":{json.dumps(name)},"arguments":{arguments}{meta}}}'


def odd_ones(name):
    """What every server is asked, whether it can answer or not."""
    return [
        ("ping", "{}"),
        ("tools/list", "{}"),
        ("tools/list", '{"cursor":"no such page"}'),
        ("resources/list", "{}"),
        ("resources/templates/list", "{}"),
        ("resources/read", '{"uri":"file:///no/such/é"}'),
        ("prompts/list", "{}"),
        ("prompts/get", '{"name":"no such prompt","arguments":{"topic":"x"}}'),
        (
            "completion/complete",
            '{"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":"b"}}',
        ),
        ("logging/setLevel", '{"level":"debug"}'),
        ("no/such\\u002fmethod", f'{{"n":{BIG},"x":1e400,"y":-0.0,"s":"\\ud83e\\udd80"}}'),
        tool("no_such_tool", {"x": "é"}, {"io.counterfoil/operationId": "odd-1"}),
        tool("no_such_tool", '{"n":[1.0,1E2,0.1e-7]}'),
        tool(name, "{}"),
        tool(name, '{"\\u0070ath":7,"repo_path":[],"query":{},"names":null}'),
        tool(name, f'{{"path":{BIG},"repo_path":{BIG},"query":{BIG},"names":{BIG}}}'),
        ("tools/call", f'{{"name":"{name}"}}'),
        tool(name, {}, {"progressToken": "t é", "example.test/kept": [1, {"a": None}]}),
    ]


def filesystem(root):
    """@modelcontextprotocol/server-filesystem on a directory."""
    at = lambda name: f"{root}/{name}"  # noqa: E731
    calls = []
    for name, text in TEXTS.items():
        path = at(f"{name} é.txt")
        call = {"path": path, "content": text, "operation_id": f"write-{name}"}
        calls += [
            tool("write_file", call),
            # The same again: it is answered from the ledger, and the server is not asked.
            tool("write_file", call),
            tool("read_text_file", {"path": path}),
            tool("get_file_info", {"path": path}),
        ]
    text = json.dumps(at("plain é.txt"))
    media = at("pixel.png")
    edits = [{"oldText": "two", "newText": "zwei \"2\""}]
    edit = {"path": at("plain é.txt"), "edits": edits}
    move = {"source": at("anonymous"), "destination": at("folder/moved")}
    calls += [
        tool("read_file", f'{{ "path" : {text} , "head" : 1 }}'),
        tool("read_text_file", f'{{"tail":1,\n"path":{text}}}'.replace("\n", " ")),
        tool("read_text_file", f'{{"path":{text},"head":{BIG}}}'),
        tool("read_text_file", f'{{"path":{text},"head":1,"tail":1}}'),
        tool("edit_file", {"operation_id": "dry", "dryRun": True, **edit}),
        tool("edit_file", {**edit, "operation_id": "edit"}),
        tool("edit_file", {**edit, "operation_id": "edit again"}),
        tool("write_file", {"path": "/no/such", "content": "x", "operation_id": "outside"}),
        tool("write_file", {"path": at("none/x"), "content": "x", "operation_id": "no folder"}),
        tool("write_file", {"operation_id": "alone"}),
        # Without an ID.
        tool("write_file", {"path": at("anonymous"), "content": "x"}),
        tool("write_file", f'{{"path":{json.dumps(at("numbers"))},"content":"x","n":1.50}}'),
        tool("write_file", {"path": media, "content": base64.b64encode(bytes(99)).decode()}),
        tool("read_media_file", {"path": media}),
        tool("create_directory", {"path": at("folder/in/folder"), "operation_id": "mkdir"}),
        tool("move_file", {**move, "operation_id": "mv"}),
        tool("move_file", {**move, "operation_id": "mv again"}),
        tool("read_multiple_files", {"paths": [at("gone"), at("folder/moved")]}),
        tool("list_directory", {"path": root}),
        tool("list_directory_with_sizes", {"path": root, "sortBy": "size"}),
        tool("directory_tree", {"path": root, "excludePatterns": ["*.png"]}),
        tool("search_files", {"path": root, "pattern": "**/*é*"}),
        tool("list_allowed_directories", {}),
        tool("get_file_info", {"path": at("folder")}),
    ]
    return calls + odd_ones("read_text_file")


def memory(_root):
    """@modelcontextprotocol/server-memory."""
    calls = []
    for name, text in TEXTS.items():
        entity = {"name": f"{name} é", "entityType": "text", "observations": [text, text[:3]]}
        call = {"entities": [entity], "operation_id": f"create-{name}"}
        added = [{"entityName": entity["name"], "contents": ["more", text[::-1]]}]
        calls += [
            tool("create_entities", call),
            tool("create_entities", call),
            tool("open_nodes", {"names": [entity["name"]]}),
            tool("add_observations", {"operation_id": f"add-{name}", "observations": added}),
        ]
    relation = {"from": "plain é", "to": "json é", "relationType": "knows 🦀"}
    gone = [{"entityName": "nobody", "contents": ["x"]}]
    deletions = [{"entityName": "plain é", "observations": ["more"]}]
    calls += [
        tool("create_relations", {"relations": [relation], "operation_id": "relate"}),
        tool("create_relations", {"relations": [relation], "operation_id": "relate again"}),
        tool("create_relations", {"relations": [{"from": 1}], "operation_id": "relate badly"}),
        tool("create_entities", {"entities": []}),
        tool("create_entities", {"entities": {}, "operation_id": "no list"}),
        tool("create_entities", {"operation_id": "alone"}),
        tool("add_observations", {"observations": gone, "operation_id": "to nobody"}),
        tool("search_nodes", {"query": "é"}),
        tool("search_nodes", '{ "query" : "\\u00e9" }'),
        tool("read_graph", {}),
        tool("open_nodes", {"names": ["nobody", ""]}),
        tool("open_nodes", '{"names":["\\ud83e\\udd80","\\/"]}'),
        tool("delete_observations", {"deletions": deletions}),
        tool("delete_relations", {"relations": [relation], "operation_id": "unrelate"}),
        tool("delete_entities", {"entityNames": ["json é", "nobody"], "operation_id": "delete"}),
        tool("read_graph", {}),
    ]
    return calls + odd_ones("open_nodes")


def sqlite(_root):
    """mcp-server-sqlite on a new file."""
    table = "CREATE TABLE t (n INTEGER, x REAL, s TEXT, b BLOB)"
    calls = [
        tool("create_table", {"query": table, "operation_id": "t"}),
        tool("create_table", {"query": "CREATE TABLE t (n INTEGER)", "operation_id": "t again"}),
        tool("create_table", {"query": "SELECT 1", "operation_id": "no create"}),
        tool("create_table", {"query": "CREATE TABLE \"é🦀\" (a)"}),
    ]
    for name, text in TEXTS.items():
        # SQL ends at a NUL.
        value = text.replace("\u0000", "").replace("'", "''")
        call = {"query": f"INSERT INTO t VALUES (1, 0.1, '{value}', x'00ff')", "operation_id": name}
        calls += [tool("write_query", call), tool("write_query", call)]
    calls += [
        tool("append_insight", {"insight": text[:5000], "operation_id": f"insight-{name}"})
        for name, text in TEXTS.items()
    ]
    calls += [
        tool("read_query", {"query": query})
        for query in (
            "SELECT 9223372036854775807, -9223372036854775808, 1e308, -0.0, 1.0, NULL",
            "SELECT n, x, s FROM t WHERE length(s) < 1000",
            "SELECT s FROM t",
            "SELECT b FROM t LIMIT 1",
            "SELECT 'é🦀' AS \"spalte é\", char(0, 1, 31, 127, 8232)",
            "SELECT * FROM none",
            "DELETE FROM t",
            "",
            "select 1; select 2",
        )
    ]
    calls += [
        tool("write_query", {"query": "UPDATE t SET n = 2 WHERE 0"}),
        tool("write_query", {"query": "SELECT 1", "operation_id": "a read"}),
        tool("write_query", {"query": "INSERT INTO none VALUES (1)", "operation_id": "no table"}),
        tool("write_query", f'{{"query":"DELETE FROM t WHERE n = {BIG}","operation_id":"big"}}'),
        tool("write_query", '{"operation_id":"alone"}'),
        tool("list_tables", {}),
        tool("describe_table", {"table_name": "t"}),
        tool("describe_table", {"table_name": "é🦀"}),
        tool("describe_table", {"table_name": "none"}),
        ("resources/read", '{"uri":"memo://insights"}'),
        ("resources/read", '{"uri":"memo:\\/\\/insights"}'),
        ("prompts/get", '{"name":"mcp-demo","arguments":{"topic":"é 🦀"}}'),
        ("prompts/get", '{"name":"mcp-demo"}'),
    ]
    return calls + odd_ones("read_query")


def git(root):
    """mcp-server-git on a repository with one commit of `a.txt`, and other files not yet added."""
    of = lambda **more: {"repo_path": root, **more}  # noqa: E731
    calls = []
    for name, text in TEXTS.items():
        message = text.replace("\u0000", "")[:100_000]
        call = of(message=message, operation_id=f"commit-{name}")
        calls += [
            tool("git_add", of(files=[f"{name} é.txt"], operation_id=f"add-{name}")),
            tool("git_diff_staged", of(context_lines=1)),
            tool("git_commit", call),
            tool("git_commit", call),
            tool("git_log", of(max_count=2)),
        ]
    calls += [
        tool("git_status", of()),
        tool("git_diff_unstaged", of()),
        tool("git_diff_unstaged", f'{{"repo_path":{json.dumps(root)},"context_lines":{BIG}}}'),
        tool("git_diff", of(target="HEAD")),
        tool("git_diff", of(target="no such é")),
        tool("git_diff", of(target="--output=/tmp/x")),
        tool("git_show", of(revision="HEAD")),
        tool("git_show", of(revision="none")),
        tool("git_commit", of(message="nothing is staged", operation_id="nothing")),
        tool("git_add", of(files=["a.txt"])),
        tool("git_add", of(files=["gone"], operation_id="gone")),
        tool("git_reset", of(operation_id="reset")),
        tool("git_create_branch", of(branch_name="zweig-é", operation_id="branch")),
        tool("git_create_branch", of(branch_name="zweig-é", operation_id="branch again")),
        tool("git_create_branch", of(branch_name="x", base_branch="none", operation_id="no base")),
        tool("git_checkout", of(branch_name="zweig-é", operation_id="checkout")),
        tool("git_checkout", of(branch_name="none", operation_id="checkout none")),
        tool("git_checkout", {"operation_id": "alone"}),
        tool("git_branch", of(branch_type="local")),
        tool("git_branch", of(branch_type="é")),
        tool("git_log", of(start_timestamp="2000-01-01", max_count=1)),
        tool("git_status", {"repo_path": "/"}),
    ]
    return calls + odd_ones("git_status")
