//! A recipe of the guide in every order in which a network may have things happen. Its code stands
//! here once more, and is compared with the guide's. (Request and reply, another, is in `replies`.)
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

const GUIDE: &str = include_str!("../../src/guide/recipes.rs");
const HERE: &str = include_str!("recipes.rs");

/// A code without its comments and its layout.
fn plain<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let code: String = lines.filter_map(|line| line.split("//").next()).collect();
    code.split_whitespace().collect::<String>().replace(",}", "}")
}

#[test]
fn the_recipes_tested_here_are_those_of_the_guide() {
    let guide = plain(GUIDE.lines().filter_map(|line| line.strip_prefix("//!")));
    let recipes: Vec<&str> = HERE.split("// From the guide:\n").skip(1).collect();
    assert_eq!(recipes.len(), 1);
    for recipe in recipes {
        let recipe = plain(recipe.split("// Until here.\n").next().unwrap().lines());
        assert!(guide.contains(&recipe), "not in the guide:\n{recipe}");
    }
}

mod retry_with_backoff {
    use std::{
        sync::{Arc, Mutex, OnceLock, mpsc},
        thread,
        time::Duration,
    };

    use purgatory::{DelayedOperation, Outcome, Purgatory};
    use timer_core::{Executor, Job, ManualTimer};

    // From the guide:
    struct Attempt {
        number: u32,
        answer: Arc<OnceLock<String>>,
        attempts: Purgatory<&'static str, Attempt>,
        told: mpsc::Sender<String>,
    }

    impl Attempt {
        fn start(self) {
            let attempts = self.attempts.clone();
            let timeout = Duration::from_millis(100 << self.number);
            let _ = self.told.send(format!("attempt {}, {timeout:?}", self.number));
            if let Err(refused) = attempts.try_complete_else_watch(self, &["answer"], timeout) {
                let (attempt, reason) = refused.into_parts();
                let _ = attempt.told.send(reason.to_string());
            }
        }
    }

    impl DelayedOperation for Attempt {
        fn try_complete(&mut self) -> bool {
            self.answer.get().is_some()
        }
        fn on_complete(self, outcome: Outcome) {
            match (self.answer.get().cloned(), outcome) {
                (Some(answer), _) => _ = self.told.send(answer),
                (None, Outcome::Expired) if self.number < 2 => {
                    Attempt { number: self.number + 1, ..self }.start()
                }
                (None, outcome) => _ = self.told.send(outcome.to_string()),
            }
        }
    }
    // Until here.

    const ATTEMPTS: [&str; 3] = ["attempt 0, 100ms", "attempt 1, 200ms", "attempt 2, 400ms"];
    const MS: Duration = Duration::from_millis(1);

    /// Keeps its jobs until they are wanted: what happens between an expiry and its callback.
    #[derive(Clone, Debug, Default)]
    struct Later(Arc<Mutex<Vec<Job>>>);

    impl Executor for Later {
        fn execute(&self, job: Job) {
            self.0.lock().unwrap().push(job);
        }
    }

    impl Later {
        fn run(&self) {
            let jobs = std::mem::take(&mut *self.0.lock().unwrap());
            jobs.into_iter().for_each(Job::run);
        }
    }

    struct Call {
        timer: ManualTimer,
        attempts: Purgatory<&'static str, Attempt>,
        answer: Arc<OnceLock<String>>,
        seen: mpsc::Receiver<String>,
    }

    impl Call {
        /// A call that is ready to start, and its first attempt.
        fn new(executor: Option<Later>) -> (Call, Attempt) {
            let timer = ManualTimer::new();
            let builder = Purgatory::builder("attempts").timer(&timer);
            let attempts = match executor {
                Some(executor) => builder.executor(executor).build().unwrap(),
                None => builder.build().unwrap(),
            };
            let ((told, seen), answer) = (mpsc::channel(), Arc::default());
            let call = Call { timer, attempts, answer, seen };
            let (attempts, answer) = (call.attempts.clone(), call.answer.clone());
            (call, Attempt { number: 0, answer, attempts, told })
        }

        fn started() -> Call {
            let (call, first) = Call::new(None);
            first.start();
            call
        }

        /// The answer comes; returns how many it completed.
        fn answered(&self) -> usize {
            let _ = self.answer.set("answer".to_owned());
            self.attempts.check_and_complete(&"answer")
        }

        #[track_caller]
        fn told(&self, attempts: usize, end: &str) {
            let expected: Vec<_> = ATTEMPTS[..attempts].iter().copied().chain([end]).collect();
            assert_eq!(self.seen.try_iter().collect::<Vec<_>>(), expected);
            // And that was all, whatever else comes.
            self.answered();
            self.timer.advance(60_000 * MS);
            assert_eq!(self.seen.try_iter().next(), None);
            assert!(self.attempts.is_empty());
        }
    }

    #[test]
    fn an_answer_completes_whichever_attempt_waits() {
        for (at_ms, attempts) in [(0, 1), (99, 1), (100, 2), (299, 2), (300, 3), (699, 3)] {
            let call = Call::started();
            call.timer.advance(at_ms * MS);
            assert_eq!(call.answered(), 1, "after {at_ms} ms");
            assert_eq!(call.answered(), 0);
            call.told(attempts, "answer");
        }
    }

    #[test]
    fn without_an_answer_the_last_attempt_expires_and_a_late_one_changes_nothing() {
        let call = Call::started();
        call.timer.advance(700 * MS);
        assert_eq!(call.answered(), 0);
        call.told(3, "expired");
    }

    #[test]
    fn an_answer_before_the_first_attempt_waits_is_found() {
        let (call, first) = Call::new(None);
        assert_eq!(call.answered(), 0);
        first.start();
        call.told(1, "answer");
    }

    /// After one has expired, before its callback, which would park the next.
    #[test]
    fn an_answer_between_two_attempts_or_after_the_last_expiry_is_not_lost() {
        for passed in 1..=3 {
            let later = Later::default();
            let (call, first) = Call::new(Some(later.clone()));
            first.start();
            for attempt in 1..=passed {
                assert_eq!(call.attempts.len(), 1);
                call.timer.advance(Duration::from_millis(50 << attempt));
                assert!(call.attempts.is_empty());
                if attempt == passed {
                    assert_eq!(call.answered(), 0);
                }
                later.run();
            }
            call.told(passed, "answer");
        }
    }

    #[test]
    fn a_shutdown_is_told_before_and_while_an_attempt_waits() {
        let call = Call::started();
        call.attempts.shutdown();
        call.told(1, "cancelled: shut down");

        let (call, first) = Call::new(None);
        call.attempts.shutdown();
        first.start();
        call.told(1, "the purgatory was shut down");
    }

    /// Whether the answer comes before, while or after an attempt expires is the scheduler's
    /// choice.
    #[test]
    fn an_answer_that_races_with_the_expiries_is_told_once() {
        for _ in 0..500 {
            let Call { timer, attempts, answer, seen } = Call::started();
            thread::scope(|scope| {
                let expires = scope.spawn(|| timer.advance(100 * MS));
                let answers = scope.spawn(|| {
                    answer.set("answer".to_owned()).unwrap();
                    attempts.check_and_complete(&"answer");
                });
                expires.join().unwrap();
                answers.join().unwrap();
            });
            timer.advance(60_000 * MS);
            let told: Vec<_> = seen.try_iter().collect();
            assert!(told[1..] == ["answer"] || told[1..] == [ATTEMPTS[1], "answer"], "{told:?}");
            assert!(attempts.is_empty());
        }
    }
}
