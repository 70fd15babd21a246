/* Loops over single operations, and prints the nanoseconds each took, one line for every line read from stdin. CPU time,
 * not time on the clock: what else the machine does shall not count.
 * Usage: bystander TRACED_PATH UNTRACED_PATH */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE 64 /* bytes of an operation on a socket nobody traces */
#define REQUEST 300 /* a CRI request with its headers */
#define ANSWER 8000 /* a list of ten containers */
#define BURST 100 /* calls without a pause; too few bytes to wake the reader, who would take one of two CPUs away */
#define BURSTS 10
#define PAUSE_US 60000

static int null;
static char buffer[1 << 16];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double spent_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void connect_to(const char *path, int ends[2])
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);

	strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
	unlink(path);
	ends[0] = socket(AF_UNIX, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) || listen(listener, 1) ||
	    connect(ends[0], (struct sockaddr *)&address, sizeof(address)))
		die(path);
	ends[1] = accept(listener, 0, 0);
}

static void connect_tcp(int ends[2])
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&address, &length) ||
	    connect(ends[0], (struct sockaddr *)&address, length))
		die("tcp");
	ends[1] = accept(listener, 0, 0);
	setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static void read_whole(int fd, ssize_t bytes)
{
	for (ssize_t n; bytes > 0; bytes -= n)
		if ((n = read(fd, buffer, bytes)) <= 0)
			die("read");
}

static void *serve(void *fd)
{
	static char answer[ANSWER];
	char request[REQUEST];

	for (;;) {
		ssize_t n = 0, more;

		while (n < REQUEST && (more = read(*(int *)fd, request + n, REQUEST - n)) > 0)
			n += more;
		if (n < REQUEST || write(*(int *)fd, answer, ANSWER) != ANSWER)
			return 0;
	}
}

static void pass(int ends[2])
{
	if (write(ends[0], buffer, MESSAGE) != MESSAGE || read(ends[1], buffer, MESSAGE) != MESSAGE)
		die("pass");
}

/* ns of a call to a server in another thread, both sides */
static double call_in_bursts(int fd)
{
	double spent = 0;

	for (int burst = 0; burst < BURSTS; burst++) {
		double start = spent_ns();

		for (int n = 0; n < BURST; n++) {
			if (write(fd, buffer, REQUEST) != REQUEST)
				die("call");
			read_whole(fd, ANSWER);
		}
		spent += spent_ns() - start;
		usleep(PAUSE_US);
	}
	return spent / (BURST * BURSTS);
}

#define TIMED(name, count, operation)                                    \
	do {                                                             \
		double start = spent_ns();                                    \
		for (int n = 0; n < (count); n++)                        \
			operation;                                       \
		printf("%s=%.2f ", name, (spent_ns() - start) / (count));     \
	} while (0)

int main(int count, char **arguments)
{
	int pair[2], bound[2], tcp[2], traced[2];
	char line[16];
	pthread_t server;

	if (count != 3)
		return 2;
	null = open("/dev/null", O_WRONLY);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		die("socketpair");
	connect_to(arguments[1], traced);
	connect_to(arguments[2], bound);
	connect_tcp(tcp);
	pthread_create(&server, 0, serve, &traced[1]);
	while (fgets(line, sizeof(line), stdin)) {
		TIMED("getppid", 400000, syscall(SYS_getppid));
		TIMED("write_null", 400000, (void)!write(null, buffer, MESSAGE));
		TIMED("unix_pair", 100000, pass(pair));
		TIMED("unix_bound", 100000, pass(bound));
		TIMED("tcp", 20000, pass(tcp));
		printf("traced_call=%.2f\n", call_in_bursts(traced[0]));
		fflush(stdout);
	}
	return 0;
}
