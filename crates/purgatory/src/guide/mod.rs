//! The guide, from the first wait to a million of them.
//!
// Each chapter is a Markdown file that reads on a forge, too. It ends with the targets that its
// links have there. The definitions in `links.md` come first, so in rustdoc they take precedence.
#![doc = include_str!("links.md")]
#![doc = include_str!("guide.md")]

pub mod start {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("start.md")]
}

pub mod replies {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("replies.md")]
}

pub mod rpc {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("rpc.md")]
}

pub mod watermarks {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("watermarks.md")]
}

pub mod replication {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("replication.md")]
}

pub mod leases {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("leases.md")]
}

pub mod operations {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("operations.md")]
}

pub mod watches {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("watches.md")]
}

pub mod lifecycle {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("lifecycle.md")]
}

pub mod your_code {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("your_code.md")]
}

pub mod time {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("time.md")]
}

pub mod tokio {
    #![doc = include_str!("links.md")]
    // Its first program needs the feature; the page does not.
    #![cfg_attr(any(feature = "tokio", not(doctest)), doc = include_str!("tokio.md"))]
}

pub mod testing {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("testing.md")]
}

pub mod operating {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("operating.md")]
}

pub mod scale {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("scale.md")]
}

pub mod recipes;

pub mod local {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("local.md")]
}

pub mod hand_written {
    #![doc = include_str!("links.md")]
    #![doc = include_str!("hand_written.md")]
}
