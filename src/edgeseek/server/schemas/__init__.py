"""Bodies of requests and answers, under OpenAI's names. An unknown field is refused, never ignored."""
