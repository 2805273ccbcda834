/*
 * What starting programs costs, in microseconds, the least of many: `starts one PRELOAD...`, of a program
 * that does not know CUDA; `starts init PRELOAD...`, of opening the driver and cuInit in a new program. Each
 * prints a JSON list; the preloads take turns, because machines change from second to second. And `starts
 * many NUMBER PRELOAD` prints the milliseconds from the first of so many starts at once until the last has
 * initialised CUDA and ended. The programs are this one.
 */
#include <dlfcn.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 200
#define MOST 8 /* preloads to compare */

extern char** environ;

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void start(const char* what)
{
    char* arguments[] = { (char*)"starts", (char*)what, NULL };
    pid_t child;
    if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ))
        exit(1);
}

static void wait_for(int count)
{
    int status;
    while (count-- > 0)
        if (wait(&status) < 0 || status)
            exit(1);
}

static double one_us(void)
{
    double before = now_us();
    start("nothing");
    wait_for(1);
    return now_us() - before;
}

/* The program says on its standard output how long it took. */
static double init_us(void)
{
    double took = 0;
    int up[2];
    int own_output = dup(STDOUT_FILENO);
    if (own_output < 0 || pipe(up) || dup2(up[1], STDOUT_FILENO) < 0)
        exit(1);
    start("timed");
    dup2(own_output, STDOUT_FILENO);
    close(own_output);
    close(up[1]);
    wait_for(1);
    if (read(up[0], &took, sizeof took) != sizeof took)
        exit(1);
    close(up[0]);
    return took;
}

static void print_least(double (*once)(void), char** preloads, int count)
{
    double least[MOST];
    for (int i = 0; i < ROUNDS * count; i++) {
        setenv("LD_PRELOAD", preloads[i % count], 1);
        double took = once();
        if (i < count || took < least[i % count])
            least[i % count] = took;
    }
    for (int i = 0; i < count; i++)
        printf("%s%.1f", i ? ", " : "[", least[i]);
    printf("]\n");
}

static double many_ms(int count)
{
    double before = now_us();
    for (int i = 0; i < count; i++)
        start("cuda");
    wait_for(count);
    return (now_us() - before) / 1000;
}

static int initialise(void)
{
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
    return init ? init(0) : 1;
}

int main(int count, char** arguments)
{
    if (count > 1 && !strcmp(arguments[1], "nothing"))
        return 0;
    if (count > 1 && !strcmp(arguments[1], "cuda"))
        return initialise();
    if (count > 1 && !strcmp(arguments[1], "timed")) {
        double before = now_us();
        int result = initialise();
        double took = now_us() - before;
        return result || write(STDOUT_FILENO, &took, sizeof took) != sizeof took;
    }
    if (count < 3 || count > 2 + MOST)
        return 2;
    if (!strcmp(arguments[1], "many")) {
        setenv("LD_PRELOAD", arguments[3], 1);
        printf("%.1f\n", many_ms(atoi(arguments[2])));
    } else {
        print_least(!strcmp(arguments[1], "one") ? one_us : init_us, arguments + 2, count - 2);
    }
    return 0;
}
