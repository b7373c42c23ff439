/* The first and only process of the guest that `bench vm` drives by hand: loads the modules that the packaged kernel
 * needs, finds its port, and does what it is told there, a letter at a time. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char bytes[1 << 16];

static void all(int fd, const char *from, size_t count) {
    while (count > 0) {
        ssize_t done = write(fd, from, count);
        if (done <= 0) _exit(1);
        from += done;
        count -= (size_t)done;
    }
}

static int port(void) {
    DIR *dir = opendir("/sys/class/virtio-ports");
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        char path[512], name[64] = {0};
        snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", entry->d_name);
        int fd = open(path, O_RDONLY);
        if (fd < 0) continue;
        ssize_t count = read(fd, name, sizeof name - 1);
        close(fd);
        if (count > 0 && !strncmp(name, "guest", 5)) {
            snprintf(path, sizeof path, "/dev/%s", entry->d_name);
            return open(path, O_RDWR);
        }
    }
    return -1;
}

static void load(void) {
    FILE *order = fopen("/modules/order", "r");
    char name[256], path[300];
    while (order && fgets(name, sizeof name, order)) {
        name[strcspn(name, "\n")] = 0;
        snprintf(path, sizeof path, "/modules/%s", name);
        int fd = open(path, O_RDONLY);
        if (fd >= 0) syscall(SYS_finit_module, fd, "", 0);
        if (fd >= 0) close(fd);
    }
}

/* A command of its own: another program, whose output is passed on. */
static void command(int to, const char *program) {
    int ends[2];
    if (pipe(ends)) _exit(1);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        execl(program, program, "out", (char *)0);
        _exit(1);
    }
    close(ends[1]);
    ssize_t count = read(ends[0], bytes, sizeof bytes);
    if (count > 0) all(to, bytes, (size_t)count);
    close(ends[0]);
    waitpid(child, 0, 0);
}

int main(int argc, char **argv) {
    /* The first process is given the words of the command line that the kernel does not know. */
    (void)argc;
    (void)argv;
    if (getpid() != 1) return write(1, "out\n", 4) != 4;
    mount("devtmpfs", "/dev", "devtmpfs", 0, 0);
    mkdir("/sys", 0755);
    mount("sysfs", "/sys", "sysfs", 0, 0);
    load();
    int fd = -1;
    for (int tries = 0; fd < 0 && tries < 10000; tries++) {
        fd = port();
        if (fd < 0) usleep(1000);
    }
    if (fd < 0) return 1;
    all(fd, "R", 1);
    for (;;) {
        char word;
        uint32_t count;
        /* Before anyone is there, a read ends at once. */
        if (read(fd, &word, 1) != 1) {
            usleep(500);
            continue;
        }
        switch (word) {
        case 'x':
            command(fd, "/init");
            break;
        case 'y':
            command(fd, "/bin/echo");
            break;
        case 'e':
            all(fd, "e", 1);
            break;
        case 'd':
            if (read(fd, &count, sizeof count) != sizeof count) return 1;
            while (count > 0) {
                size_t part = count < sizeof bytes ? count : sizeof bytes;
                all(fd, bytes, part);
                count -= (uint32_t)part;
            }
            break;
        default:
            return 1;
        }
    }
}
