mod suite;
use std::sync::Arc;
use counterfoil_store::*;
use suite::{calls::*, clock::*, effects::*};
#[tokio::test]
async fn smoke() {
    let dir = tempfile::tempdir().unwrap();
    let mut o = SqliteOptions::new(dir.path().join("l.db"));
    o.clock = Arc::new(TestClock::new());
    o.tables = tables();
    let s = SqliteStore::open(&o).unwrap();
    s.bind_keys(&ring(&[(1,1)])).await.unwrap();
    let c = call("a");
    println!("{:?}", s.submit(c.with(note("x"))).await);
    println!("{:?}", s.submit(c.with(note("x"))).await);
    println!("{:?}", s.look_up(&c.tenant(), &c.operation_id()).await);
    let c = call("b");
    let r = s.submit(c.with(two_steps(Goes::Well, Goes::Well))).await.unwrap();
    let Answer::Fresh(r) = r.into_answer() else { panic!() };
    let e = Arc::new(two_steps(Goes::Fails, Goes::Fails));
    println!("{:?}", s.finish(Finish { key: r.key, boot: BOOT, fence: 1, effect: e }).await);
    println!("{:#?}", s.audit(r.key).await);
    println!("{:?}", s.info().await);
    s.close().await.unwrap();
    for f in std::fs::read_dir(dir.path()).unwrap() { let f=f.unwrap(); println!("{:?} {:?}", f.path(), f.metadata().unwrap()); }
    drop(s);
    let s = SqliteStore::open(&o).unwrap();
    println!("{:?}", s.submit(c.with(note("x"))).await);
}
