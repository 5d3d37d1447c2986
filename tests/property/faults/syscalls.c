/* Stands between a process and the C library (LD_PRELOAD) and, for files below one folder, makes the n-th call of some
 * kinds fail, come up short, kill the process or wait for another process; or writes every call that changes the disk,
 * with its data, to a trace. Also moves the clock, and gives another file in the place of one. Driven through the
 * faults_* functions (library.py); does nothing before. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The order of KINDS in library.py. */
enum { OPEN_READ, OPEN_WRITE, READ, WRITE, SYNC, LINK, RENAME, UNLINK, MKDIR, TRUNCATE, MAP, LOCK, LOOK };
/* The order of WAYS in library.py. */
enum { NEVER, ONCE, FROM_THEN_ON, SHORT, KILL, KILL_AFTER, PAUSE };
/* The order of Call in trace.py. */
enum { T_OPEN = 1, T_CLOSE, T_WRITE, T_TRUNCATE, T_SYNC, T_LINK, T_RENAME, T_UNLINK, T_MKDIR, T_RMDIR, T_MARK, T_LOCK };

#define MAX_FD 65536
static char root[PATH_MAX], gate[PATH_MAX], swapped[PATH_MAX], instead[PATH_MAX];
static size_t root_length;
static volatile long kinds, way, at, error_number, count, fired, clock_seconds;
static volatile long counts[LOOK + 1];
static volatile int trace_fd = -1;
static unsigned char ours[MAX_FD];
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static int is_below(const char *path) {
    return root_length && path && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

/* The absolute path of a name relative to a directory descriptor; NULL where there is none. */
static const char *absolute(int folder, const char *path, char *buffer) {
    if (!path) return NULL;
    if (path[0] == '/') return path;
    if (folder == AT_FDCWD) {
        if (!getcwd(buffer, PATH_MAX - 1)) return NULL;
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        static ssize_t (*real)(const char *, char *, size_t);
        if (!real) real = (ssize_t (*)(const char *, char *, size_t))dlsym(RTLD_NEXT, "readlink");
        ssize_t length = real(link, buffer, PATH_MAX - 1);
        if (length < 0) return NULL;
        buffer[length] = 0;
    }
    size_t length = strlen(buffer);
    if (path[0]) snprintf(buffer + length, PATH_MAX - length, "/%s", path);
    return buffer;
}

static int is_ours(int fd) { return fd >= 0 && fd < MAX_FD && ours[fd]; }
static void note_fd(int fd, int below) { if (fd >= 0 && fd < MAX_FD) ours[fd] = below; }

/* --- faults -------------------------------------------------------------------------------------------------------- */

static void wait_at_gate(void) {
    char name[PATH_MAX + 16];
    int (*open_file)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    int (*look)(const char *, int) = (int (*)(const char *, int))dlsym(RTLD_NEXT, "access");
    int (*shut)(int) = (int (*)(int))dlsym(RTLD_NEXT, "close");
    snprintf(name, sizeof name, "%s.reached", gate);
    shut(open_file(name, O_WRONLY | O_CREAT, 0644));
    snprintf(name, sizeof name, "%s.go", gate);
    while (look(name, F_OK)) usleep(300);
}

/* 0: go on; 1: fail with errno; 2: do a part. */
static int strikes(int kind) {
    if (!way && !at) return 0;
    if (!(kinds & (1L << kind))) return 0;
    __sync_add_and_fetch(&counts[kind], 1);
    long mine = __sync_add_and_fetch(&count, 1);
    if (way == NEVER || (way == FROM_THEN_ON ? mine < at : mine != at)) return 0;
    fired = 1;
    switch (way) {
    case SHORT: return 2;
    case KILL: raise(SIGKILL); return 0;
    case KILL_AFTER: return 3;
    case PAUSE: wait_at_gate(); return 0;
    }
    errno = error_number;
    return 1;
}
static void after(int struck) { if (struck == 3) raise(SIGKILL); }

void faults_below(const char *folder) { snprintf(root, sizeof root, "%s", folder); root_length = strlen(root); }
void faults_arm(long kinds_, long way_, long at_, long errno_, const char *gate_) {
    way = NEVER; at = 0;
    snprintf(gate, sizeof gate, "%s", gate_);
    kinds = kinds_; error_number = errno_; count = 0; fired = 0;
    for (int kind = 0; kind <= LOOK; kind++) counts[kind] = 0;
    at = at_; way = way_;
}
void faults_disarm(void) { way = NEVER; at = 0; }
long faults_count(void) { return count; }
long faults_count_of(long kind) { return counts[kind]; }
long faults_fired(void) { return fired; }
void faults_clock(long seconds) { clock_seconds = seconds; }
void faults_swap(const char *file, const char *other) {
    snprintf(swapped, sizeof swapped, "%s", file);
    snprintf(instead, sizeof instead, "%s", other);
}

/* --- the trace ----------------------------------------------------------------------------------------------------- */

struct record { uint32_t what; int32_t fd; int64_t first, second; uint32_t path, other, data; } __attribute__((packed));

static void put_all(const void *bytes, size_t length) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    for (const char *next = bytes; length;) {
        ssize_t done = real(trace_fd, next, length);
        if (done <= 0) abort();
        next += done; length -= done;
    }
}
static void trace(int what, int fd, int64_t first, int64_t second, const char *path, const char *other,
                  const struct iovec *parts, int number, size_t size) {
    int kept = errno;
    struct record head = {what, fd, first, second, path ? strlen(path) : 0, other ? strlen(other) : 0, size};
    put_all(&head, sizeof head);
    if (path) put_all(path, head.path);
    if (other) put_all(other, head.other);
    for (int i = 0; i < number && size; i++) {
        size_t piece = parts[i].iov_len < size ? parts[i].iov_len : size;
        put_all(parts[i].iov_base, piece);
        size -= piece;
    }
    errno = kept;
}
#define TRACED(condition) int traced = trace_fd >= 0 && (condition); if (traced) pthread_mutex_lock(&order)
#define DONE() if (traced) pthread_mutex_unlock(&order)

void faults_trace(const char *file) {
    int (*open_file)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    trace_fd = open_file(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}
void faults_mark(const char *text) {
    pthread_mutex_lock(&order);
    if (trace_fd >= 0) trace(T_MARK, -1, 0, 0, text, NULL, NULL, 0, 0);
    pthread_mutex_unlock(&order);
}

/* --- files --------------------------------------------------------------------------------------------------------- */

typedef int (*open_call)(int, const char *, int, mode_t);
static int real_open(int folder, const char *path, int flags, mode_t mode) {
    static int (*real)(int, const char *, int, ...);
    if (!real) real = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat64");
    return real(folder, path, flags, mode);
}
static int opened(int folder, const char *path, int flags, mode_t mode) {
    char buffer[PATH_MAX];
    if (swapped[0] && path && !strcmp(path, swapped)) path = instead;
    const char *whole = root_length ? absolute(folder, path, buffer) : NULL;
    int below = is_below(whole), struck = 0;
    int writes = flags & (O_WRONLY | O_RDWR | O_CREAT);
    if (below && (struck = strikes(writes ? OPEN_WRITE : OPEN_READ)) == 1) return -1;
    TRACED(below);
    static int (*look)(const char *, int);
    if (!look) look = (int (*)(const char *, int))dlsym(RTLD_NEXT, "access");
    int unnamed = (flags & O_TMPFILE) == O_TMPFILE;
    int created = traced && (unnamed || ((flags & O_CREAT) && look(whole, F_OK)));
    int fd = real_open(folder, path, flags, mode);
    note_fd(fd, below);
    if (traced && fd >= 0) trace(T_OPEN, fd, flags, unnamed ? 2 : created, whole, NULL, NULL, 0, 0);
    DONE();
    after(struck);
    return fd;
}
#define MODE(last) mode_t mode = 0; if (last & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, last); mode = va_arg(rest, int); va_end(rest); }
int open(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE(flags) return opened(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE(flags) return opened(folder, path, flags, mode); }
int creat(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return opened(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int __open_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __openat_2(int folder, const char *path, int flags) { return opened(folder, path, flags, 0); }
int __openat64_2(int folder, const char *path, int flags) { return opened(folder, path, flags, 0); }

int close(int fd) {
    REAL(close);
    TRACED(is_ours(fd));
    if (traced) trace(T_CLOSE, fd, 0, 0, NULL, NULL, NULL, 0, 0);
    note_fd(fd, 0);
    int result = real(fd);
    DONE();
    return result;
}

static ssize_t wrote(int fd, const struct iovec *parts, int number, off64_t at_, ssize_t result) {
    if (result > 0) trace(T_WRITE, fd, at_ >= 0 ? at_ : lseek64(fd, 0, SEEK_CUR) - result, 0, NULL, NULL, parts, number, result);
    return result;
}
ssize_t write(int fd, const void *bytes, size_t size) {
    REAL(write);
    if (!is_ours(fd)) return real(fd, bytes, size);
    int struck = strikes(WRITE);
    if (struck == 1) return -1;
    if (struck == 2 && size > 1) size /= 2;
    TRACED(1);
    struct iovec part = {(void *)bytes, size};
    ssize_t result = real(fd, bytes, size);
    if (traced) wrote(fd, &part, 1, -1, result);
    DONE();
    after(struck);
    return result;
}
ssize_t writev(int fd, const struct iovec *parts, int number) {
    REAL(writev);
    if (!is_ours(fd)) return real(fd, parts, number);
    int struck = strikes(WRITE);
    if (struck == 1) return -1;
    struct iovec half;
    if (struck == 2 && number > 0) {
        half = parts[0];
        if (number == 1 && half.iov_len > 1) half.iov_len /= 2;
        parts = &half; number = 1;
    }
    TRACED(1);
    ssize_t result = real(fd, parts, number);
    if (traced) wrote(fd, parts, number, -1, result);
    DONE();
    after(struck);
    return result;
}
ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset) {
    REAL(pwrite64);
    if (!is_ours(fd)) return real(fd, bytes, size, offset);
    int struck = strikes(WRITE);
    if (struck == 1) return -1;
    if (struck == 2 && size > 1) size /= 2;
    TRACED(1);
    struct iovec part = {(void *)bytes, size};
    ssize_t result = real(fd, bytes, size, offset);
    if (traced) wrote(fd, &part, 1, offset, result);
    DONE();
    after(struck);
    return result;
}
ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset) { return pwrite64(fd, bytes, size, offset); }

/* Copies inside the kernel: the bytes are read back for the trace. */
static void copied(int fd, off64_t from, ssize_t size) {
    if (size <= 0) return;
    ssize_t (*look)(int, void *, size_t, off64_t) = (ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int readable = real_open(AT_FDCWD, link, O_RDONLY | O_CLOEXEC, 0);
    char *bytes = malloc(size);
    if (readable < 0 || !bytes || look(readable, bytes, size, from) != size) abort();
    struct iovec part = {bytes, size};
    trace(T_WRITE, fd, from, 0, NULL, NULL, &part, 1, size);
    free(bytes);
    int (*shut)(int) = (int (*)(int))dlsym(RTLD_NEXT, "close");
    shut(readable);
}
ssize_t sendfile64(int to, int from, off64_t *offset, size_t size) {
    static ssize_t (*real)(int, int, off64_t *, size_t);
    if (!real) real = (ssize_t (*)(int, int, off64_t *, size_t))dlsym(RTLD_NEXT, "sendfile64");
    if (!is_ours(to)) return real(to, from, offset, size);
    int struck = strikes(WRITE);
    if (struck == 1) return -1;
    if (struck == 2 && size > 1) size /= 2;
    TRACED(1);
    ssize_t result = real(to, from, offset, size);
    if (traced) copied(to, lseek64(to, 0, SEEK_CUR) - result, result);
    DONE();
    after(struck);
    return result;
}
ssize_t sendfile(int to, int from, off_t *offset, size_t size) { return sendfile64(to, from, offset, size); }
ssize_t copy_file_range(int from, off64_t *in, int to, off64_t *out, size_t size, unsigned flags) {
    REAL(copy_file_range);
    if (!is_ours(to)) return real(from, in, to, out, size, flags);
    int struck = strikes(WRITE);
    if (struck == 1) return -1;
    if (struck == 2 && size > 1) size /= 2;
    TRACED(1);
    ssize_t result = real(from, in, to, out, size, flags);
    if (traced) copied(to, (out ? *out : lseek64(to, 0, SEEK_CUR)) - result, result);
    DONE();
    after(struck);
    return result;
}

ssize_t read(int fd, void *bytes, size_t size) {
    REAL(read);
    int struck = is_ours(fd) ? strikes(READ) : 0;
    if (struck == 1) return -1;
    if (struck == 2 && size > 1) size /= 2;
    ssize_t result = real(fd, bytes, size);
    after(struck);
    return result;
}
ssize_t pread64(int fd, void *bytes, size_t size, off64_t offset) {
    REAL(pread64);
    int struck = is_ours(fd) ? strikes(READ) : 0;
    if (struck == 1) return -1;
    if (struck == 2 && size > 1) size /= 2;
    ssize_t result = real(fd, bytes, size, offset);
    after(struck);
    return result;
}
ssize_t pread(int fd, void *bytes, size_t size, off_t offset) { return pread64(fd, bytes, size, offset); }
#undef fread_unlocked
size_t fread_unlocked(void *bytes, size_t size, size_t number, FILE *file) { /* RocksDB reads its MANIFEST so */
    REAL(fread_unlocked);
    if (is_ours(fileno(file)) && strikes(READ) == 1) {
        file->_flags |= 0x20; /* ferror() */
        return 0;
    }
    return real(bytes, size, number, file);
}
static void *mapped(void *(*real)(void *, size_t, int, int, int, off64_t), void *where, size_t size, int protection,
                    int flags, int fd, off64_t offset) {
    int struck = is_ours(fd) && !(flags & MAP_ANONYMOUS) ? strikes(MAP) : 0;
    if (struck == 1) return MAP_FAILED;
    void *result = real(where, size, protection, flags, fd, offset);
    after(struck);
    return result;
}
void *mmap64(void *where, size_t size, int protection, int flags, int fd, off64_t offset) {
    REAL(mmap64);
    return mapped((void *(*)(void *, size_t, int, int, int, off64_t))real, where, size, protection, flags, fd, offset);
}
void *mmap(void *where, size_t size, int protection, int flags, int fd, off_t offset) {
    static void *(*real)(void *, size_t, int, int, int, off64_t);
    if (!real) real = (void *(*)(void *, size_t, int, int, int, off64_t))dlsym(RTLD_NEXT, "mmap64");
    return mapped(real, where, size, protection, flags, fd, offset);
}

static int synced(int (*real)(int), int fd) {
    if (!is_ours(fd)) return real(fd);
    int struck = strikes(SYNC);
    if (struck == 1) return -1;
    TRACED(1);
    int result = real(fd);
    if (traced && !result) trace(T_SYNC, fd, 0, 0, NULL, NULL, NULL, 0, 0);
    DONE();
    after(struck);
    return result;
}
int fsync(int fd) { REAL(fsync); return synced(real, fd); }
int fdatasync(int fd) { REAL(fdatasync); return synced(real, fd); }
int syncfs(int fd) { REAL(syncfs); return synced(real, fd); }

int ftruncate64(int fd, off64_t size) {
    REAL(ftruncate64);
    if (!is_ours(fd)) return real(fd, size);
    int struck = strikes(TRUNCATE);
    if (struck == 1) return -1;
    TRACED(1);
    int result = real(fd, size);
    if (traced && !result) trace(T_TRUNCATE, fd, size, 0, NULL, NULL, NULL, 0, 0);
    DONE();
    after(struck);
    return result;
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }
int truncate64(const char *path, off64_t size) {
    char buffer[PATH_MAX];
    REAL(truncate64);
    const char *whole = root_length ? absolute(AT_FDCWD, path, buffer) : NULL;
    if (!is_below(whole)) return real(path, size);
    int struck = strikes(TRUNCATE);
    if (struck == 1) return -1;
    TRACED(1);
    int result = real(path, size);
    if (traced && !result) trace(T_TRUNCATE, -1, size, 0, whole, NULL, NULL, 0, 0);
    DONE();
    after(struck);
    return result;
}
int truncate(const char *path, off_t size) { return truncate64(path, size); }
int flock(int fd, int operation) {
    REAL(flock);
    int struck = is_ours(fd) && (operation & ~LOCK_NB) != LOCK_UN ? strikes(LOCK) : 0;
    if (struck == 1) return -1;
    int result = real(fd, operation);
    if (trace_fd >= 0 && is_ours(fd)) {
        pthread_mutex_lock(&order);
        trace(T_LOCK, fd, operation, result, NULL, NULL, NULL, 0, 0);
        pthread_mutex_unlock(&order);
    }
    after(struck);
    return result;
}

/* --- names --------------------------------------------------------------------------------------------------------- */

/* One or two names; ``call`` is what is done if nothing strikes. */
#define NAMES(kind, what, first_, second_, call) \
    char one[PATH_MAX], two[PATH_MAX]; \
    const char *source = root_length ? first_ : NULL, *target = root_length ? second_ : NULL; \
    (void)two; \
    if (!is_below(source) && !is_below(target)) return call; \
    int struck = strikes(kind); \
    if (struck == 1) return -1; \
    TRACED(1); \
    int result = call; \
    if (traced && !result) trace(what, -1, 0, 0, source, target, NULL, 0, 0); \
    DONE(); \
    after(struck); \
    return result;

int link(const char *a, const char *b) { REAL(link); NAMES(LINK, T_LINK, absolute(AT_FDCWD, a, one), absolute(AT_FDCWD, b, two), real(a, b)) }
int linkat(int x, const char *a, int y, const char *b, int f) { REAL(linkat); NAMES(LINK, T_LINK, absolute(x, a, one), absolute(y, b, two), real(x, a, y, b, f)) }
int rename(const char *a, const char *b) { REAL(rename); NAMES(RENAME, T_RENAME, absolute(AT_FDCWD, a, one), absolute(AT_FDCWD, b, two), real(a, b)) }
int renameat(int x, const char *a, int y, const char *b) { REAL(renameat); NAMES(RENAME, T_RENAME, absolute(x, a, one), absolute(y, b, two), real(x, a, y, b)) }
int renameat2(int x, const char *a, int y, const char *b, unsigned f) { REAL(renameat2); NAMES(RENAME, T_RENAME, absolute(x, a, one), absolute(y, b, two), real(x, a, y, b, f)) }
int unlink(const char *a) { REAL(unlink); NAMES(UNLINK, T_UNLINK, absolute(AT_FDCWD, a, one), NULL, real(a)) }
int unlinkat(int x, const char *a, int f) { REAL(unlinkat); NAMES(UNLINK, f & AT_REMOVEDIR ? T_RMDIR : T_UNLINK, absolute(x, a, one), NULL, real(x, a, f)) }
int rmdir(const char *a) { REAL(rmdir); NAMES(UNLINK, T_RMDIR, absolute(AT_FDCWD, a, one), NULL, real(a)) }
int remove(const char *a) {
    struct stat found;
    return !lstat(a, &found) && S_ISDIR(found.st_mode) ? rmdir(a) : unlink(a);
}
int mkdir(const char *a, mode_t m) { REAL(mkdir); NAMES(MKDIR, T_MKDIR, absolute(AT_FDCWD, a, one), NULL, real(a, m)) }
int mkdirat(int x, const char *a, mode_t m) { REAL(mkdirat); NAMES(MKDIR, T_MKDIR, absolute(x, a, one), NULL, real(x, a, m)) }

/* --- looking ------------------------------------------------------------------------------------------------------- */

#define LOOKS(folder, path) \
    char buffer[PATH_MAX]; \
    if (root_length && (kinds & (1L << LOOK)) && (way || at) && is_below(absolute(folder, path, buffer)) && strikes(LOOK) == 1)
int access(const char *a, int m) { REAL(access); LOOKS(AT_FDCWD, a) return -1; return real(a, m); }
int faccessat(int x, const char *a, int m, int f) { REAL(faccessat); LOOKS(x, a) return -1; return real(x, a, m, f); }
int stat(const char *a, struct stat *s) { REAL(stat); LOOKS(AT_FDCWD, a) return -1; return real(a, s); }
int lstat(const char *a, struct stat *s) { REAL(lstat); LOOKS(AT_FDCWD, a) return -1; return real(a, s); }
int fstatat(int x, const char *a, struct stat *s, int f) { REAL(fstatat); LOOKS(x, a) return -1; return real(x, a, s, f); }
int stat64(const char *a, struct stat64 *s) { REAL(stat64); LOOKS(AT_FDCWD, a) return -1; return real(a, s); }
int lstat64(const char *a, struct stat64 *s) { REAL(lstat64); LOOKS(AT_FDCWD, a) return -1; return real(a, s); }
int fstatat64(int x, const char *a, struct stat64 *s, int f) { REAL(fstatat64); LOOKS(x, a) return -1; return real(x, a, s, f); }
DIR *opendir(const char *a) { REAL(opendir); LOOKS(AT_FDCWD, a) return NULL; return real(a); }

/* --- time ---------------------------------------------------------------------------------------------------------- */

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    int result = real(clock, now);
    if (!result && clock == CLOCK_REALTIME) now->tv_sec += clock_seconds;
    return result;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    static int (*real)(struct timeval *, void *);
    if (!real) real = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
    int result = real(now, zone);
    if (!result) now->tv_sec += clock_seconds;
    return result;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
