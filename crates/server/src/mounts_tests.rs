//! Mount tables as data: which mount holds a path, and what is refused there.

use super::*;

const TABLE: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
30 27 0:40 / /srv/nfs rw,relatime shared:5 master:2 - nfs4 filer:/export rw,vers=4.2
31 30 8:3 / /srv/nfs/local rw - xfs /dev/sdb1 rw
32 27 0:41 / /mnt/with\\040space\\011and\\134slash rw - cifs //filer/share rw
33 27 8:5 / /data rw - ext4 /dev/sdc1 rw
34 33 0:50 / /data rw - nfs filer:/data rw
35 27 8:6 / /over/inner rw - ext4 /dev/sdd1 rw
36 27 0:51 / /over rw - 9p host rw,trans=virtio
37 27 0:52 / /workspaces rw - virtiofs host0 rw
38 27 0:53 / /home/u/remote rw - fuse.sshfs u@h:/ rw
39 27 8:7 / /media/stick rw - fuseblk /dev/sde1 rw
short line
x y z
";

#[test]
fn the_mount_that_holds_a_path_is_found_as_the_kernel_would() {
    // Promise: the file system is judged that really holds the path, whatever is mounted on what.
    let cases: &[(&str, &str)] = &[
        ("/", "ext4"),
        ("/var/lib/counterfoil", "ext4"),
        ("/srv/nfs", "nfs4"),
        ("/srv/nfs/deep/er", "nfs4"),
        ("/srv/nfsx", "ext4"),
        ("/srv/nfs/local/x", "xfs"),
        ("/mnt/with space\tand\\slash/x", "cifs"),
        // Stacked on one place: the later one is on top.
        ("/data/x", "nfs"),
        // Covered: the inner mount is older than what hides it.
        ("/over/inner/x", "9p"),
        ("/workspaces/project", "virtiofs"),
        ("/proc/1", "proc"),
    ];
    for (path, fs_type) in cases {
        let mount = find(TABLE.as_bytes(), Path::new(path)).expect(path);
        assert_eq!(mount.fs_type, *fs_type, "{path}");
    }
}

#[test]
fn a_table_that_does_not_tell_refuses_nothing_and_never_hangs() {
    // Promise: a strange mount table stops neither the search nor the start.
    let ring = "1 2 0:1 / / rw - nfs a rw\n2 1 0:2 / / rw - nfs b rw\n";
    for table in ["", "\n\n", "27 1", "a b c d e f - g", ring] {
        assert_eq!(find(table.as_bytes(), Path::new("/x")), None, "{table:?}");
        assert_eq!(check(table.as_bytes(), Path::new("/x"), None), Ok(()));
    }
    let chroot = "50 49 8:1 / /data rw - nfs filer:/ rw\n";
    assert!(find(chroot.as_bytes(), Path::new("/etc")).is_none());
    assert_eq!(find(chroot.as_bytes(), Path::new("/data")).expect("found").fs_type, "nfs");
    let own_parent = "1 1 0:1 / / rw - rootfs none rw\n2 1 8:1 / / rw - ext4 /dev/sda rw\n";
    assert_eq!(find(own_parent.as_bytes(), Path::new("/etc")).expect("found").fs_type, "ext4");
}

#[test]
fn file_systems_that_cannot_hold_a_ledger_are_refused() {
    // Promise: no ledger is opened where its write-ahead log could lose acknowledged commits.
    use Fitness::{Good, HostShare, Unsafe};
    let cases: &[(&str, Fitness)] = &[
        ("ext4", Good),
        ("xfs", Good),
        ("btrfs", Good),
        ("zfs", Good),
        ("tmpfs", Good),
        ("overlay", Good),
        ("fuseblk", Good),
        ("nfs", Unsafe),
        ("nfs4", Unsafe),
        ("cifs", Unsafe),
        ("smb3", Unsafe),
        ("smbfs", Unsafe),
        ("ncpfs", Unsafe),
        ("afs", Unsafe),
        ("ceph", Unsafe),
        ("glusterfs", Unsafe),
        ("lustre", Unsafe),
        ("gfs2", Unsafe),
        ("ocfs2", Unsafe),
        ("fuse", Unsafe),
        ("fuse.sshfs", Unsafe),
        ("fuse.s3fs", Unsafe),
        ("fuse.rclone", Unsafe),
        ("fuse.gcsfuse", Unsafe),
        ("fuse.glusterfs", Unsafe),
        ("fuse.never-heard-of", Unsafe),
        ("9p", HostShare),
        ("virtiofs", HostShare),
        ("drvfs", HostShare),
        ("vboxsf", HostShare),
        ("vmhgfs", HostShare),
        ("fuse.grpcfuse", HostShare),
        ("fuse.osxfs", HostShare),
        ("fakeowner", HostShare),
    ];
    for (fs_type, expected) in cases {
        assert_eq!(fitness(fs_type), *expected, "{fs_type}");
    }
}

#[test]
fn the_override_opens_host_shares_and_nothing_else() {
    // Promise: an operator can vouch for a container's bind mount, and never for a network one.
    let check = |path: &str, vouched| check(TABLE.as_bytes(), Path::new(path), vouched);
    assert_eq!(check("/no-such-place", None), Ok(()));
    assert_eq!(check("/media/stick", None), Ok(()));
    for share in ["/workspaces/x", "/over/x"] {
        let error = check(share, None).expect_err(share).to_string();
        assert!(error.contains(OnlyThisHost::WORD), "{error}");
        assert!(error.contains("--data-dir"), "{error}");
        assert_eq!(check(share, Some(OnlyThisHost)), Ok(()), "{share}");
    }
    for network in ["/srv/nfs/x", "/mnt/with space\tand\\slash", "/data", "/home/u/remote"] {
        let error = check(network, Some(OnlyThisHost)).expect_err(network).to_string();
        assert!(error.contains("can lose acknowledged commits"), "{error}");
        assert!(error.contains("local disk"), "{error}");
        assert!(!error.contains(OnlyThisHost::WORD), "{error}");
    }
}

#[test]
fn links_and_directories_still_to_be_made_are_judged_where_they_lead() {
    // Promise: a link to a network share is refused before anything is made behind it.
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let root = scratch.path().canonicalize().expect("it exists");
    let share = root.join("share");
    std::fs::create_dir(&share).expect("made");
    std::os::unix::fs::symlink(&share, root.join("link")).expect("linked");
    let table = format!(
        "27 1 254:0 / / rw - ext4 /dev/vda rw\n30 27 0:40 / {} rw - nfs4 filer:/ rw\n",
        share.display()
    );
    for path in ["share", "link", "link/not/yet/made", "share/new", "link/../share/new"] {
        let path = root.join(path);
        assert!(check(table.as_bytes(), &path, None).is_err(), "{}", path.display());
        assert!(!path.join("new").exists());
    }
    assert_eq!(check(table.as_bytes(), &root.join("beside/new"), None), Ok(()));
    assert_eq!(resolve(&root.join("link/a/b")), share.join("a/b"));
}
