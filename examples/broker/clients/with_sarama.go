// sarama as a driver: see protocol.py. Of Debian's package, so without modules.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/Shopify/sarama"
)

// Of a driver for its client; who runs it waits longer.
const wait = 20 * time.Second

// What the client has not.
var errCannot = errors.New("cannot")

var address []string

// A line of input.
type command map[string]string

func (c command) text(name, otherwise string) string {
	if value, found := c[name]; found {
		return value
	}
	return otherwise
}

func (c command) number(name string, otherwise int) int {
	value, err := strconv.Atoi(c[name])
	if err != nil {
		return otherwise
	}
	return value
}

func (c command) partition() int32 { return int32(c.number("partition", 0)) }

// What is produced: each driver makes the same.
func (c command) values() []string {
	var values []string
	for at := 0; at < c.number("count", 1); at++ {
		value := fmt.Sprintf("%s-%d-", c["prefix"], at)
		if missing := c.number("size", 60) - len(value); missing > 0 {
			value += strings.Repeat("x", missing)
		}
		values = append(values, value)
	}
	return values
}

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_1_0_0
	if os.Getenv("KAFKA") == "0.9.0.1" {
		config.Version = sarama.V0_9_0_1
	}
	return config
}

func produce(c command) ([]string, error) {
	config := config()
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.MaxMessageBytes = 100_000_000
	config.Producer.Flush.Frequency = 20 * time.Millisecond
	config.Producer.Timeout = time.Duration(c.number("timeout_ms", 30000)) * time.Millisecond
	config.Producer.Retry.Max = 0
	acks := map[string]sarama.RequiredAcks{"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll}
	config.Producer.RequiredAcks = acks[c.text("acks", "all")]
	codecs := map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}
	config.Producer.Compression = codecs[c.text("codec", "none")]
	if c.number("idempotent", 0) == 1 {
		config.Producer.Idempotent, config.Producer.Retry.Max, config.Net.MaxOpenRequests = true, 5, 1
	}
	producer, err := sarama.NewSyncProducer(address, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for _, value := range c.values() {
		message := &sarama.ProducerMessage{Topic: c["topic"], Partition: c.partition(), Value: sarama.StringEncoder(value)}
		messages = append(messages, message)
	}
	var failed sarama.ProducerErrors
	if err = producer.SendMessages(messages); errors.As(err, &failed) {
		return nil, failed[0].Err
	}
	return nil, err
}

func consume(c command) ([]string, error) {
	config := config()
	config.Consumer.MaxWaitTime = time.Duration(c.number("wait_ms", 500)) * time.Millisecond
	config.Consumer.Fetch.Min = int32(c.number("min_bytes", 1))
	consumer, err := sarama.NewConsumer(address, config)
	if err != nil {
		return nil, err
	}
	reader, err := consumer.ConsumePartition(c["topic"], c.partition(), sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	var found []string
	for end := time.After(wait); len(found) < c.number("count", 1); {
		select {
		case message := <-reader.Messages():
			found = append(found, string(message.Value))
		case <-end:
			return nil, fmt.Errorf("%d consumed", len(found))
		}
	}
	return found, nil
}

type told struct{ topic string }

func (told) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (t told) Setup(session sarama.ConsumerGroupSession) error {
	var mine []string
	for _, partition := range session.Claims()[t.topic] {
		mine = append(mine, strconv.Itoa(int(partition)))
	}
	sort.Strings(mine)
	fmt.Println("assigned", strings.Join(mine, ","))
	return nil
}

func (told) ConsumeClaim(_ sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for range claim.Messages() {
	}
	return nil
}

func member(c command) ([]string, error) {
	if c.text("protocol", "classic") != "classic" {
		return nil, errCannot
	}
	config := config()
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	group, err := sarama.NewConsumerGroup(address, c["group"], config)
	if err != nil {
		return nil, err
	}
	for {
		if err = group.Consume(context.Background(), []string{c["topic"]}, told{c["topic"]}); err != nil {
			return nil, err
		}
	}
}

func offset(c command) ([]string, error) {
	client, err := sarama.NewClient(address, config())
	if err != nil {
		return nil, err
	}
	found, err := client.GetOffset(c["topic"], c.partition(), int64(c.number("time_ms", 0)))
	if err != nil {
		return nil, err
	}
	if found < 0 {
		return []string{"none"}, nil
	}
	return []string{strconv.FormatInt(found, 10)}, nil
}

func create(c command) ([]string, error) {
	admin, err := sarama.NewClusterAdmin(address, config())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	pair := strings.SplitN(c["config"], ":", 2)
	entries := map[string]*string{pair[0]: &pair[1]}
	detail := sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1, ConfigEntries: entries}
	return nil, admin.CreateTopic(c["topic"], &detail, false)
}

func deleteRecords(c command) ([]string, error) {
	admin, err := sarama.NewClusterAdmin(address, config())
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	return nil, admin.DeleteRecords(c["topic"], map[int32]int64{c.partition(): int64(c.number("before", 0))})
}

func main() {
	verbs := map[string]func(command) ([]string, error){
		"produce": produce, "consume": consume, "member": member, "offset": offset, "create": create,
		"delete": deleteRecords,
	}
	address = []string{os.Args[1]}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		c := command{}
		for _, word := range words[1:] {
			pair := strings.SplitN(word, "=", 2)
			c[pair[0]] = pair[1]
		}
		answer, err := []string(nil), errCannot
		if verb, found := verbs[words[0]]; found {
			answer, err = verb(c)
		}
		switch {
		case err == errCannot:
			fmt.Println("cannot")
		case err != nil:
			fmt.Println("error", strings.Join(strings.Fields(fmt.Sprintf("%T: %v", err, err)), " "))
		default:
			fmt.Println(strings.TrimSpace("ok " + strings.Join(answer, " ")))
		}
	}
}
