// The orderings that ThreadSanitizer does not see in a standard library that was not built for it. The linker's
// --wrap brings the calls here.

// `Arc` decrements its count with a release, and has an acquire fence before it frees. The sanitizer does not model
// fences. A std built for it loads the count instead, but stable's std is not. So each decrement with a release
// acquires as well.
enum { RELEASE = 3, ACQUIRE_RELEASE = 4 };

unsigned long __real___tsan_atomic64_fetch_sub(volatile unsigned long *, unsigned long, int);

unsigned long __wrap___tsan_atomic64_fetch_sub(volatile unsigned long *count, unsigned long by, int order) {
    return __real___tsan_atomic64_fetch_sub(count, by, order == RELEASE ? ACQUIRE_RELEASE : order);
}

// The code that locks a free `Mutex`, and the code that unlocks any, is compiled into the caller. A contended `Mutex`
// is locked in std, by the function LOCK_CONTENDED.
void __tsan_acquire(void *);
void real_lock_contended(void *) __asm__("__real_" LOCK_CONTENDED);
void wrap_lock_contended(void *) __asm__("__wrap_" LOCK_CONTENDED);

void wrap_lock_contended(void *mutex) {
    real_lock_contended(mutex);
    __tsan_acquire(mutex);
}

// A `Condvar` unlocks its mutex and locks it again in std, in the functions WAIT and WAIT_TIMEOUT.
void __tsan_release(void *);
void real_wait(void *, void *) __asm__("__real_" WAIT);
void wrap_wait(void *, void *) __asm__("__wrap_" WAIT);
_Bool real_wait_timeout(void *, void *, unsigned long, unsigned) __asm__("__real_" WAIT_TIMEOUT);
_Bool wrap_wait_timeout(void *, void *, unsigned long, unsigned) __asm__("__wrap_" WAIT_TIMEOUT);

void wrap_wait(void *condvar, void *mutex) {
    __tsan_release(mutex);
    real_wait(condvar, mutex);
    __tsan_acquire(mutex);
}

_Bool wrap_wait_timeout(void *condvar, void *mutex, unsigned long seconds, unsigned nanoseconds) {
    __tsan_release(mutex);
    _Bool woken = real_wait_timeout(condvar, mutex, seconds, nanoseconds);
    __tsan_acquire(mutex);
    return woken;
}
