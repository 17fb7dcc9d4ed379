//! Registers a command from its page in `commands/`: flags, keys, ACL categories, and all that COMMAND DOCS shows.

use std::ffi::{CString, c_char, c_int};
use std::ptr::{null, null_mut};

use redis_module::raw;
use serde::Deserialize;

use crate::call::Entry;
use crate::edge::{OK, api};

/// A page, as far as the server wants to know it. `PARENT|CHILD` is the name of a subcommand.
#[derive(Deserialize)]
pub struct Page {
    pub name: String,
    summary: String,
    complexity: String,
    since: String,
    flags: Vec<String>,
    acl_categories: Vec<String>,
    keys: Keys,
    arguments: Vec<Argument>,
    #[serde(default)]
    pub subcommands: Vec<Page>,
}

pub fn parse(page: &str) -> Result<Page, String> {
    serde_json::from_str(page).map_err(|error| format!("a command page is malformed: {error}"))
}

/// Keys are at `first`, then every `step`, up to `last` (negative: counted from the end). No keys: all zero.
#[derive(Deserialize)]
struct Keys {
    first: c_int,
    last: c_int,
    step: c_int,
    access: Option<String>,
    /// Behind this word, somewhere from position `from` on, may stand one more key.
    keyword: Option<String>,
    #[serde(default)]
    from: c_int,
}

#[derive(Deserialize)]
struct Argument {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    token: Option<String>,
    #[serde(default)]
    optional: bool,
    #[serde(default)]
    multiple: bool,
    #[serde(default)]
    multiple_token: bool,
    #[serde(default)]
    arguments: Vec<Argument>,
}

/// What registering came to.
pub enum Registered {
    Yes,
    /// Another module has the name.
    NameTaken,
}

/// Keeps every C string and array of one description alive while the server copies it.
#[derive(Default)]
struct Arena {
    strings: Vec<CString>,
    arrays: Vec<Box<[raw::RedisModuleCommandArg]>>,
}

impl Arena {
    fn text(&mut self, text: &str) -> *const c_char {
        self.strings.push(CString::new(text).unwrap_or_default());
        self.strings.last().map_or(null(), |text| text.as_ptr())
    }

    /// A C array of arguments, ended by an empty one.
    fn arguments(&mut self, arguments: &[Argument]) -> *mut raw::RedisModuleCommandArg {
        if arguments.is_empty() {
            return null_mut();
        }
        let mut array: Vec<_> = arguments.iter().map(|argument| self.argument(argument)).collect();
        array.push(EMPTY_ARGUMENT);
        self.arrays.push(array.into_boxed_slice());
        self.arrays.last_mut().map_or(null_mut(), |array| array.as_mut_ptr())
    }

    fn argument(&mut self, argument: &Argument) -> raw::RedisModuleCommandArg {
        let flags = [
            (argument.optional, raw::REDISMODULE_CMD_ARG_OPTIONAL),
            (argument.multiple, raw::REDISMODULE_CMD_ARG_MULTIPLE),
            (argument.multiple_token, raw::REDISMODULE_CMD_ARG_MULTIPLE_TOKEN),
        ];
        raw::RedisModuleCommandArg {
            name: self.text(&argument.name),
            type_: argument_type(&argument.kind),
            // A key behind a word is found by the second specification.
            key_spec_index: match (argument.kind.as_str(), &argument.token) {
                ("key", None) => 0,
                ("key", Some(_)) => 1,
                _ => -1,
            },
            token: argument.token.as_deref().map_or(null(), |token| self.text(token)),
            flags: flags.iter().filter(|(set, _)| *set).map(|(_, flag)| *flag as c_int).sum(),
            subargs: self.arguments(&argument.arguments),
            ..EMPTY_ARGUMENT
        }
    }
}

const EMPTY_ARGUMENT: raw::RedisModuleCommandArg = raw::RedisModuleCommandArg {
    name: null(),
    type_: 0,
    key_spec_index: 0,
    token: null(),
    summary: null(),
    since: null(),
    flags: 0,
    deprecated_since: null(),
    subargs: null_mut(),
    display_text: null(),
};

fn argument_type(kind: &str) -> raw::RedisModuleCommandArgType {
    match kind {
        "integer" => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
        "key" => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
        "pure-token" => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
        "oneof" => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
        "block" => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
        _ => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
    }
}

/// Registers a command; one that only has subcommands is not run itself.
pub fn register(ctx: *mut raw::RedisModuleCtx, page: &Page, run: Option<Entry>) -> Result<Registered, String> {
    let run: raw::RedisModuleCmdFunc = run.map(|run| run as _);
    let name = CString::new(page.name.as_str()).unwrap_or_default();
    let flags = CString::new(page.flags.join(" ")).unwrap_or_default();
    let &Keys { first, last, step, .. } = &page.keys;
    // SAFETY: called while loading; the server copies name and flags.
    unsafe {
        let created = match page.name.split_once('|') {
            None => api!(RedisModule_CreateCommand)(ctx, name.as_ptr(), run, flags.as_ptr(), first, last, step),
            Some((parent, child)) => {
                let parent = CString::new(parent).unwrap_or_default();
                let child = CString::new(child).unwrap_or_default();
                let parent = api!(RedisModule_GetCommand)(ctx, parent.as_ptr());
                api!(RedisModule_CreateSubcommand)(parent, child.as_ptr(), run, flags.as_ptr(), first, last, step)
            }
        };
        if created != OK {
            return Ok(Registered::NameTaken);
        }
        let command = api!(RedisModule_GetCommand)(ctx, name.as_ptr());
        if command.is_null() || !describe(command, page) {
            return Err(format!("{} could not be described", page.name));
        }
        categorise(command, page);
    }
    Ok(Registered::Yes)
}

/// # Safety
/// `command` is the command just created, here and below.
unsafe fn describe(command: *mut raw::RedisModuleCommand, page: &Page) -> bool {
    let version = raw::RedisModuleCommandInfoVersion {
        version: 1,
        sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
        sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
        sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
    };
    let mut arena = Arena::default();
    let behind_word = page.keys.keyword.as_ref().map(|word| keyword_spec(&page.keys, arena.text(word)));
    let mut key_specs = [key_spec(&page.keys), behind_word.unwrap_or_else(empty_key_spec), empty_key_spec()];
    let info = raw::RedisModuleCommandInfo {
        version: &version,
        summary: arena.text(&page.summary),
        complexity: arena.text(&page.complexity),
        since: arena.text(&page.since),
        history: null_mut(),
        tips: null(),
        // Zero leaves counting to us: our refusal names the argument that is missing.
        arity: 0,
        key_specs: if page.keys.first > 0 { key_specs.as_mut_ptr() } else { null_mut() },
        args: arena.arguments(&page.arguments),
    };
    // SAFETY: by contract; the server copies everything before this returns.
    unsafe { api!(RedisModule_SetCommandInfo)(command, &info) == OK }
}

fn empty_key_spec() -> raw::RedisModuleCommandKeySpec {
    // SAFETY: a C structure of integers and pointers, for which zero is the documented end mark.
    unsafe { std::mem::zeroed() }
}

fn key_spec(keys: &Keys) -> raw::RedisModuleCommandKeySpec {
    let access = match keys.access.as_deref() {
        Some("read") => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        _ => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE,
    };
    let mut spec = empty_key_spec();
    spec.flags = access as u64;
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
    spec.bs.index.pos = keys.first;
    spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
    // Relative to the first key, unless counted from the end.
    spec.fk.range.lastkey = if keys.last < 0 { keys.last } else { keys.last - keys.first };
    spec.fk.range.keystep = keys.step;
    spec.fk.range.limit = 0;
    spec
}

/// The key right behind a word.
fn keyword_spec(keys: &Keys, word: *const c_char) -> raw::RedisModuleCommandKeySpec {
    let mut spec = key_spec(keys);
    spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_KEYWORD;
    spec.bs.keyword.keyword = word;
    spec.bs.keyword.startfrom = keys.from;
    spec.fk.range.lastkey = 0;
    spec.fk.range.keystep = 1;
    spec
}

/// Puts the command into its ACL categories, our own included where the server lets modules have one.
unsafe fn categorise(command: *mut raw::RedisModuleCommand, page: &Page) {
    // SAFETY: a read of a binding filled at load; absent before Redis 7.2, where `+res.gcra` is the way.
    let Some(set) = (unsafe { raw::RedisModule_SetCommandACLCategories }) else { return };
    let own = [crate::ACL_CATEGORY].map(str::to_owned);
    let with_own = [page.acl_categories.as_slice(), own.as_slice()].concat();
    for categories in [with_own, page.acl_categories.clone()] {
        let categories = CString::new(categories.join(" ")).unwrap_or_default();
        // SAFETY: by contract; the server copies the text.
        if unsafe { set(command, categories.as_ptr()) } == OK {
            return;
        }
    }
}
