//! PL/pgSQL as text becomes a tree. What it has and this database has not is refused here, by its name.

use sqlparser::ast;
use sqlparser::tokenizer::Token;

use super::lexemes::{Lexeme, lexemes};
use super::statements::{Block, Declaration, DeclaredType, Into, Kind, Statement, Target};
use crate::error::{SqlError, SqlState};

/// How deeply statements may nest in each other.
const DEPTH: usize = 64;

/// The statements of a body in SQL.
pub(crate) fn sql_body(text: &str) -> Result<Vec<ast::Statement>, SqlError> {
    crate::parse::statements(text)
}

/// The block that a body in PL/pgSQL is.
pub(crate) fn plpgsql_body(text: &str) -> Result<Block, SqlError> {
    let mut parser = Parser { text, lexemes: lexemes(text)?, at: 0, depth: 0 };
    let label = parser.label()?;
    let block = parser.block(label)?;
    parser.eat(";");
    if parser.at < parser.lexemes.len() { Err(parser.wrong()) } else { Ok(block) }
}

/// What a parser of a body knows.
pub(super) struct Parser<'t> {
    text: &'t str,
    pub(super) lexemes: Vec<Lexeme>,
    pub(super) at: usize,
    depth: usize,
}

/// Keywords that no statement begins with.
const ENDS: [&str; 6] = ["end", "else", "elsif", "elseif", "when", "exception"];

impl Parser<'_> {
    fn slice(&self, at: usize) -> &str {
        self.lexemes.get(at).map_or("", |lexeme| &self.text[lexeme.start..lexeme.end])
    }

    /// Whether the lexeme is this keyword or sign.
    fn is_at(&self, at: usize, wanted: &str) -> bool {
        self.lexemes.get(at).is_some_and(|lexeme| match &lexeme.token {
            Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted),
            _ => &self.text[lexeme.start..lexeme.end] == wanted,
        })
    }

    pub(super) fn is(&self, wanted: &str) -> bool {
        self.is_at(self.at, wanted)
    }

    pub(super) fn eat(&mut self, wanted: &str) -> bool {
        let is_there = self.is(wanted);
        self.at += usize::from(is_there);
        is_there
    }

    pub(super) fn expect(&mut self, wanted: &str) -> Result<(), SqlError> {
        if self.eat(wanted) { Ok(()) } else { Err(self.wrong()) }
    }

    /// That the lexeme here cannot stand here.
    #[cold]
    pub(super) fn wrong(&self) -> SqlError {
        let message = match self.lexemes.get(self.at) {
            Some(_) => format!("syntax error at or near \"{}\"", self.slice(self.at)),
            None => "syntax error at end of input".to_owned(),
        };
        SqlError::new(SqlState::SYNTAX_ERROR, message)
    }

    fn line(&self) -> u32 {
        self.lexemes.get(self.at).or(self.lexemes.last()).map_or(1, |lexeme| lexeme.line)
    }

    pub(super) fn name(&mut self) -> Result<String, SqlError> {
        let name = self.lexemes.get(self.at).and_then(Lexeme::name).ok_or_else(|| self.wrong())?;
        self.at += 1;
        Ok(name)
    }

    /// `<<label>>`, if there is one.
    fn label(&mut self) -> Result<Option<String>, SqlError> {
        if !self.eat("<<") {
            return Ok(None);
        }
        let name = self.name()?;
        self.expect(">>")?;
        Ok(Some(name))
    }

    /// The label that an END may repeat.
    fn end_label(&mut self, label: Option<&str>) -> Result<(), SqlError> {
        if self.at >= self.lexemes.len() || self.is(";") {
            return Ok(());
        }
        let name = self.name()?;
        match label {
            Some(own) if own == name => Ok(()),
            Some(own) => {
                let message = format!("end label \"{name}\" differs from block's label \"{own}\"");
                Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
            }
            None => {
                let message = format!("end label \"{name}\" specified for unlabeled block");
                Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
            }
        }
    }

    /// Where the first of these stands outside of parentheses and CASE, from here on.
    fn find(&self, ends: &[&str]) -> Result<usize, SqlError> {
        let (mut parentheses, mut cases) = (0_usize, 0_usize);
        for at in self.at..self.lexemes.len() {
            if parentheses == 0 && cases == 0 && ends.iter().any(|end| self.is_at(at, end)) {
                return Ok(at);
            }
            match &self.lexemes[at].token {
                Token::LParen | Token::LBracket => parentheses += 1,
                Token::RParen | Token::RBracket => parentheses = parentheses.saturating_sub(1),
                Token::SemiColon => break,
                _ if self.is_at(at, "case") => cases += 1,
                _ if self.is_at(at, "end") => cases = cases.saturating_sub(1),
                _ => {}
            }
        }
        let at = self.lexemes.len();
        Err(Self { text: self.text, lexemes: Vec::new(), at, depth: 0 }.wrong())
    }

    /// The text from one lexeme up to another.
    fn text_between(&self, from: usize, to: usize) -> &str {
        if from >= to { "" } else { &self.text[self.lexemes[from].start..self.lexemes[to - 1].end] }
    }

    /// The text up to one of these, which is next then.
    fn text_until(&mut self, ends: &[&str]) -> Result<String, SqlError> {
        let end = self.find(ends)?;
        let text = self.text_between(self.at, end).to_owned();
        self.at = end;
        Ok(text)
    }

    /// The expression up to one of these, which is next then.
    #[inline(never)]
    pub(super) fn expression_until(&mut self, ends: &[&str]) -> Result<ast::Expr, SqlError> {
        let text = self.text_until(ends)?;
        if text.is_empty() {
            return Err(self.wrong());
        }
        expression(&text)
    }

    // Statements nest. What is not inlined does not add to the stack of those that are around others.
    #[inline(never)]
    fn block(&mut self, label: Option<String>) -> Result<Block, SqlError> {
        let mut declarations = Vec::new();
        while self.eat("declare") {
            while !self.is("begin") && !self.is("declare") {
                declarations.push(self.declaration()?);
            }
        }
        self.expect("begin")?;
        let body = self.statements()?;
        if self.is("exception") {
            return Err(SqlError::unsupported("EXCEPTION in a procedure"));
        }
        self.expect("end")?;
        self.end_label(label.as_deref())?;
        Ok(Block { label, declarations, body })
    }

    #[inline(never)]
    fn declaration(&mut self) -> Result<Declaration, SqlError> {
        let line = self.line();
        let name = self.name()?;
        for refused in ["alias", "cursor", "no", "scroll", "refcursor"] {
            if self.is(refused) {
                return Err(SqlError::unsupported(format!("{} in a procedure", refused.to_uppercase())));
            }
        }
        let is_constant = self.eat("constant");
        let of = self.text_until(&["not", ":=", "=", "default", "collate", ";"])?;
        let of = declared_type(&of, &self.wrong())?;
        if self.is("collate") {
            return Err(SqlError::unsupported("COLLATE of a variable"));
        }
        let is_required = self.eat("not");
        if is_required {
            self.expect("null")?;
        }
        let has_initial = self.eat(":=") || self.eat("=") || self.eat("default");
        let initial = if has_initial { Some(self.expression_until(&[";"])?) } else { None };
        self.expect(";")?;
        Ok(Declaration { name, of, is_constant, is_required, initial, line })
    }

    /// Statements up to a keyword that ends them.
    fn statements(&mut self) -> Result<Vec<Statement>, SqlError> {
        self.depth += 1;
        if self.depth > DEPTH {
            let hint = format!("Statements may be nested {DEPTH} times.");
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded").with_hint(hint));
        }
        let mut statements = Vec::new();
        while self.at < self.lexemes.len() && !ENDS.iter().any(|end| self.is(end)) {
            let line = self.line();
            let kind = self.statement()?;
            statements.push(Statement { line, kind });
        }
        self.depth -= 1;
        Ok(statements)
    }

    #[inline(never)]
    fn statement(&mut self) -> Result<Kind, SqlError> {
        if self.is("<<") {
            let label = self.label()?;
            return match self.labelled(label)? {
                Some(kind) => Ok(kind),
                None => Err(self.wrong()),
            };
        }
        if let Some(kind) = self.assignment()? {
            return Ok(kind);
        }
        if let Some(kind) = self.labelled(None)? {
            return Ok(kind);
        }
        let word = self.lexemes.get(self.at).and_then(Lexeme::word).unwrap_or_default();
        match word.as_str() {
            "if" => self.branches(),
            "exit" | "continue" => self.leave(word == "continue"),
            "return" => self.return_(),
            "raise" => self.raise(),
            "null" => {
                self.at += 1;
                self.expect(";")?;
                Ok(Kind::Nothing)
            }
            "perform" => {
                self.at += 1;
                let text = self.text_until(&[";"])?;
                self.expect(";")?;
                Ok(Kind::Perform(statement(&format!("SELECT {text}"))?))
            }
            "get" => self.diagnostics(),
            "case" | "foreach" | "assert" | "execute" | "open" | "fetch" | "move" | "close" | "do" | "commit"
            | "rollback" | "savepoint" | "release" | "start" | "set" | "reset" => {
                Err(SqlError::unsupported(format!("{} in a procedure", word.to_uppercase())))
            }
            _ => self.run(),
        }
    }

    /// `target := value`, if the statement is one.
    #[inline(never)]
    fn assignment(&mut self) -> Result<Option<Kind>, SqlError> {
        let mut end = self.at + 1;
        while self.is_at(end, ".") {
            end += 2;
        }
        let is_name = self.lexemes.get(self.at).is_some_and(|lexeme| lexeme.name().is_some());
        if is_name && self.is_at(end, "[") {
            return Err(SqlError::unsupported("an assignment to an element of an array"));
        }
        if !is_name || !(self.is_at(end, ":=") || self.is_at(end, "=")) {
            return Ok(None);
        }
        let target = self.target()?;
        self.at += 1;
        let value = self.expression_until(&[";"])?;
        self.expect(";")?;
        Ok(Some(Kind::Assign { target, value }))
    }

    fn target(&mut self) -> Result<Target, SqlError> {
        let mut target = vec![self.name()?];
        while self.eat(".") {
            target.push(self.name()?);
        }
        Ok(target)
    }

    fn targets(&mut self) -> Result<Vec<Target>, SqlError> {
        let mut targets = vec![self.target()?];
        while self.eat(",") {
            targets.push(self.target()?);
        }
        Ok(targets)
    }

    /// What may have a label: a block or a loop.
    #[inline(never)]
    fn labelled(&mut self, label: Option<String>) -> Result<Option<Kind>, SqlError> {
        let kind = if self.is("declare") || self.is("begin") {
            let block = self.block(label)?;
            self.expect(";")?;
            Kind::Block(block)
        } else if self.eat("loop") {
            let body = self.loop_body(label.as_deref())?;
            Kind::Loop { label, condition: None, body }
        } else if self.eat("while") {
            let condition = Some(self.expression_until(&["loop"])?);
            self.expect("loop")?;
            let body = self.loop_body(label.as_deref())?;
            Kind::Loop { label, condition, body }
        } else if self.eat("for") {
            self.for_loop(label)?
        } else {
            return Ok(None);
        };
        Ok(Some(kind))
    }

    /// The statements of a loop, behind LOOP.
    fn loop_body(&mut self, label: Option<&str>) -> Result<Vec<Statement>, SqlError> {
        let body = self.statements()?;
        self.expect("end")?;
        self.expect("loop")?;
        self.end_label(label)?;
        self.expect(";")?;
        Ok(body)
    }

    #[inline(never)]
    fn for_loop(&mut self, label: Option<String>) -> Result<Kind, SqlError> {
        let targets = self.targets()?;
        self.expect("in")?;
        if self.is("execute") {
            return Err(SqlError::unsupported("EXECUTE in a procedure"));
        }
        let start = self.at;
        let end = self.find(&["loop"])?;
        if let (Some(dots), [variable]) = (self.dots(end), &targets[..])
            && let [variable] = &variable[..]
        {
            let variable = variable.clone();
            let is_reverse = self.eat("reverse");
            let from = self.text[self.lexemes[self.at].start..dots].to_owned();
            let (by, rest) = self.by(dots, end);
            let bounds = Box::new([expression(&from)?, expression(&rest)?, expression(by.as_deref().unwrap_or("1"))?]);
            self.at = end + 1;
            let body = self.loop_body(label.as_deref())?;
            return Ok(Kind::Range { label, variable, is_reverse, bounds, body });
        }
        let query = statement(self.text_between(start, end))?;
        self.at = end + 1;
        let body = self.loop_body(label.as_deref())?;
        Ok(Kind::Rows { label, targets, query, body })
    }

    /// Where the two dots of a range are in the text.
    fn dots(&self, end: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for lexeme in &self.lexemes[self.at..end] {
            match &lexeme.token {
                Token::LParen | Token::LBracket => depth += 1,
                Token::RParen | Token::RBracket => depth = depth.saturating_sub(1),
                Token::Number(..) | Token::Period | Token::Word(_) | Token::Placeholder(_) if depth == 0 => {
                    let found = (lexeme.start..lexeme.end).find(|&at| self.text[at..].starts_with(".."));
                    if found.is_some() {
                        return found;
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// The step of a range, and its end.
    fn by(&self, dots: usize, end: usize) -> (Option<String>, String) {
        let stop = self.lexemes[end].start;
        let by = (self.at..end).rev().find(|&at| self.lexemes[at].start > dots && self.is_at(at, "by"));
        match by {
            Some(at) => {
                let rest = self.text[dots + 2..self.lexemes[at].start].to_owned();
                (Some(self.text[self.lexemes[at].end..stop].to_owned()), rest)
            }
            None => (None, self.text[dots + 2..stop].to_owned()),
        }
    }

    #[inline(never)]
    fn branches(&mut self) -> Result<Kind, SqlError> {
        let (mut branches, mut otherwise) = (Vec::new(), Vec::new());
        self.at += 1;
        loop {
            let condition = self.expression_until(&["then"])?;
            self.expect("then")?;
            branches.push((condition, self.statements()?));
            if !(self.eat("elsif") || self.eat("elseif")) {
                break;
            }
        }
        if self.eat("else") {
            otherwise = self.statements()?;
        }
        self.expect("end")?;
        self.expect("if")?;
        self.expect(";")?;
        Ok(Kind::If { branches, otherwise })
    }

    #[inline(never)]
    fn leave(&mut self, is_continue: bool) -> Result<Kind, SqlError> {
        self.at += 1;
        let label = if self.is("when") || self.is(";") { None } else { Some(self.name()?) };
        let when = if self.eat("when") { Some(self.expression_until(&[";"])?) } else { None };
        self.expect(";")?;
        Ok(Kind::Leave { label, is_continue, when })
    }

    fn return_(&mut self) -> Result<Kind, SqlError> {
        self.at += 1;
        if !self.eat(";") {
            let message = "RETURN cannot have a parameter in a procedure";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        Ok(Kind::Return)
    }

    #[inline(never)]
    fn diagnostics(&mut self) -> Result<Kind, SqlError> {
        self.at += 1;
        if self.is("stacked") {
            return Err(SqlError::unsupported("GET STACKED DIAGNOSTICS"));
        }
        self.eat("current");
        self.expect("diagnostics")?;
        let target = self.target()?;
        if !self.eat("=") {
            self.expect(":=")?;
        }
        if !self.is("row_count") || !self.is_at(self.at + 1, ";") {
            return Err(SqlError::unsupported(format!("GET DIAGNOSTICS of {}", self.text_until(&[";"])?)));
        }
        self.at += 2;
        Ok(Kind::CountRows(target))
    }

    /// A statement of SQL, with the variables that its row goes to.
    #[inline(never)]
    fn run(&mut self) -> Result<Kind, SqlError> {
        let (start, end) = (self.at, self.find(&[";"])?);
        let mut depth = 0_usize;
        let into = (start..end).find(|&at| {
            match &self.lexemes[at].token {
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.saturating_sub(1),
                _ => {}
            }
            let is_of_statement = at > start && self.is_at(at - 1, "insert");
            depth == 0 && self.is_at(at, "into") && !is_of_statement
        });
        let Some(into) = into else {
            let statement = statement(self.text_between(start, end))?;
            self.at = end + 1;
            return Ok(Kind::Run { statement, into: None });
        };
        let before = self.text_between(start, into).to_owned();
        self.at = into + 1;
        let is_strict = self.eat("strict");
        let targets = self.targets()?;
        let statement = statement(&format!("{before} {}", self.text_between(self.at, end)))?;
        self.at = end + 1;
        Ok(Kind::Run { statement, into: Some(Into { targets, is_strict }) })
    }
}

/// What a declaration says of a type. `otherwise`: what is wrong where it says nothing.
fn declared_type(text: &str, otherwise: &SqlError) -> Result<DeclaredType, SqlError> {
    if text.is_empty() {
        return Err(otherwise.clone());
    }
    if text.eq_ignore_ascii_case("record") {
        return Ok(DeclaredType::Record);
    }
    if let Some((name, kind)) = text.rsplit_once('%') {
        let names: Vec<_> = lexemes(name)?.iter().filter_map(Lexeme::name).collect();
        return match (kind.trim().to_lowercase().as_str(), &names[..]) {
            ("type", [_] | [_, _]) => Ok(DeclaredType::TypeOf(names)),
            ("rowtype", [table]) => Ok(DeclaredType::RowOf(table.clone())),
            _ => Err(SqlError::unsupported(format!("the type {text}"))),
        };
    }
    match crate::parse::expression(&format!("NULL::{text}"))? {
        ast::Expr::Cast { data_type, .. } => Ok(DeclaredType::Plain(data_type)),
        _ => Err(otherwise.clone()),
    }
}

/// An expression, which may have a FROM as if SELECT stood before it.
#[inline(never)]
fn expression(text: &str) -> Result<ast::Expr, SqlError> {
    if text.trim().is_empty() {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error: an expression is missing"));
    }
    let plain = crate::parse::expression(text);
    if plain.is_ok() {
        return plain;
    }
    match statement(&format!("SELECT {text}")).map(|it| *it) {
        Ok(ast::Statement::Query(query)) => Ok(ast::Expr::Subquery(query)),
        _ => plain,
    }
}

/// The one statement of a text.
#[inline(never)]
fn statement(text: &str) -> Result<Box<ast::Statement>, SqlError> {
    let mut statements = crate::parse::statements(text)?;
    match (statements.pop(), statements.pop()) {
        (Some(statement), None) => Ok(statement.into()),
        _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{text}\""))),
    }
}
