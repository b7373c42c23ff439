/*
 * The floor under creating sandboxes: what the kernel alone takes for namespaces, a root of read-only binds with an
 * overlay over the work dir, groups, no privileges, Landlock, a filter, and one program in it. Nothing is recorded,
 * checked or reported, and the program is told nothing.
 *
 *   floor COUNT AT-ONCE WORK-DIR [DIRECTORY-FOR-GROUPS...]    prints the seconds that all of it took
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/mount.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NAMESPACES (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)
#define FILTERED 45

static const char *work;

static void must(int done, const char *what)
{
	if (done < 0) {
		fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
		_exit(1);
	}
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	must(fd, path);
	must(write(fd, text, strlen(text)), path);
	close(fd);
}

static void bind_read_only(const char *from)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID };
	char to[256];
	struct stat at;

	if (lstat(from, &at) < 0)
		return;
	snprintf(to, sizeof to, "/tmp%s", from);
	if (S_ISLNK(at.st_mode)) {
		char target[256] = "";
		must(readlink(from, target, sizeof target - 1), from);
		must(symlink(target, to), to);
		return;
	}
	must(mkdir(to, 0755), to);
	must(mount(from, to, NULL, MS_BIND | MS_REC, NULL), to);
	must(syscall(SYS_mount_setattr, AT_FDCWD, to, AT_RECURSIVE, &attr, sizeof attr), "read-only");
}

static void furnish(void)
{
	static const char *const shown[] = { "/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc" };
	static const char *const devices[] = { "null", "zero", "urandom" };
	char options[1024], from[64], to[64];
	unsigned n;

	must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private");
	/* The host's /tmp is covered from here on: the work dir is known by its descriptor. */
	int below = open(work, O_PATH | O_DIRECTORY | O_CLOEXEC);
	must(below, work);
	must(mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755"), "root");
	for (n = 0; n < sizeof shown / sizeof *shown; n++)
		bind_read_only(shown[n]);
	must(mkdir("/tmp/work", 0755), "work");
	must(mkdir("/tmp/.upper", 0755), "upper");
	must(mkdir("/tmp/.inner", 0755), "inner");
	snprintf(options, sizeof options, "lowerdir=/proc/self/fd/%d,upperdir=/tmp/.upper,workdir=/tmp/.inner,userxattr",
		 below);
	must(mount("overlay", "/tmp/work", "overlay", MS_NOSUID, options), "overlay");
	must(mkdir("/tmp/proc", 0755), "proc");
	must(mount("proc", "/tmp/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL), "proc");
	must(mkdir("/tmp/dev", 0755), "dev");
	must(mount("tmpfs", "/tmp/dev", "tmpfs", MS_NOSUID, "mode=755"), "dev");
	for (n = 0; n < sizeof devices / sizeof *devices; n++) {
		snprintf(from, sizeof from, "/dev/%s", devices[n]);
		snprintf(to, sizeof to, "/tmp/dev/%s", devices[n]);
		must(mknod(to, S_IFREG | 0644, 0), to);
		must(mount(from, to, NULL, MS_BIND, NULL), to);
	}
	must(mkdir("/tmp/tmp", 01777), "tmp");
	must(mount("tmpfs", "/tmp/tmp", "tmpfs", MS_NOSUID | MS_NODEV, NULL), "tmp");
	must(chdir("/tmp"), "root");
	must(syscall(SYS_pivot_root, ".", "."), "pivot_root");
	must(umount2(".", MNT_DETACH), "detach");
	must(chdir("/work"), "work");
}

static void forbid_files(void)
{
	static const char *const open_for[] = { "/usr", "/etc", "/dev", "/tmp", "/work" };
	struct landlock_ruleset_attr all = { .handled_access_fs = (1ULL << 13) - 1 };
	int rules = syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0);
	unsigned n;

	/* A kernel without it has a lower floor. */
	if (rules < 0)
		return;
	for (n = 0; n < sizeof open_for / sizeof *open_for; n++) {
		struct landlock_path_beneath_attr rule = {
			.allowed_access = n < 2 ? LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR
						: all.handled_access_fs,
			.parent_fd = open(open_for[n], O_PATH | O_CLOEXEC),
		};
		must(rule.parent_fd, open_for[n]);
		must(syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0), "landlock");
		close(rule.parent_fd);
	}
	must(syscall(SYS_landlock_restrict_self, rules, 0), "landlock");
	close(rules);
}

static void forbid_calls(void)
{
	struct sock_filter code[FILTERED + 3] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	};
	struct sock_fprog program = { .len = FILTERED + 3, .filter = code };
	int n;

	/* Which ones does not matter to its cost: they are none that the program makes. */
	for (n = 0; n < FILTERED; n++)
		code[n + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 400 + n, FILTERED - n, 0);
	code[FILTERED + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[FILTERED + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), "seccomp");
}

static void inside(int go)
{
	char word;
	int n;

	if (read(go, &word, 1) != 1)
		_exit(1);
	furnish();
	must(sethostname("sandbox", 7), "name");
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges");
	for (n = 0; n <= 40; n++)
		prctl(PR_CAPBSET_DROP, n);
	forbid_files();
	forbid_calls();
	execl("/bin/true", "true", NULL);
	must(-1, "exec");
}

static void create(char **groups, int serial)
{
	int go[2], status;
	char path[512], text[64];
	pid_t child;
	char **group;

	for (group = groups; *group; group++) {
		snprintf(path, sizeof path, "%s/floor-%d-%d", *group, getpid(), serial);
		must(mkdir(path, 0755), path);
	}
	must(pipe2(go, O_CLOEXEC), "pipe");
	child = syscall(SYS_clone, NAMESPACES | SIGCHLD, NULL, NULL, NULL, NULL);
	must(child, "clone");
	if (child == 0)
		inside(go[0]);
	snprintf(path, sizeof path, "/proc/%d/setgroups", child);
	put(path, "deny");
	snprintf(path, sizeof path, "/proc/%d/uid_map", child);
	snprintf(text, sizeof text, "0 %d 1", getuid());
	put(path, text);
	snprintf(path, sizeof path, "/proc/%d/gid_map", child);
	snprintf(text, sizeof text, "0 %d 1", getgid());
	put(path, text);
	snprintf(text, sizeof text, "%d", child);
	for (group = groups; *group; group++) {
		snprintf(path, sizeof path, "%s/floor-%d-%d/cgroup.procs", *group, getpid(), serial);
		put(path, text);
	}
	must(write(go[1], "x", 1), "go");
	close(go[0]);
	close(go[1]);
	must(waitpid(child, &status, 0), "wait");
	if (!WIFEXITED(status) || WEXITSTATUS(status)) {
		fprintf(stderr, "floor: what ran inside failed\n");
		_exit(1);
	}
	for (group = groups; *group; group++) {
		snprintf(path, sizeof path, "%s/floor-%d-%d", *group, getpid(), serial);
		must(rmdir(path), path);
	}
}

int main(int argc, char **argv)
{
	struct timespec began, over;
	int count, at_once, n, m, status, failed = 0;

	if (argc < 4)
		return 2;
	count = atoi(argv[1]);
	at_once = atoi(argv[2]);
	work = argv[3];
	clock_gettime(CLOCK_MONOTONIC, &began);
	for (n = 0; n < at_once; n++) {
		if (fork() == 0) {
			for (m = n; m < count; m += at_once)
				create(argv + 4, m);
			_exit(0);
		}
	}
	for (n = 0; n < at_once; n++)
		failed |= wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status);
	clock_gettime(CLOCK_MONOTONIC, &over);
	printf("%f\n", over.tv_sec - began.tv_sec + (over.tv_nsec - began.tv_nsec) / 1e9);
	return failed;
}
